"""The table of nodes, and how packs get into it."""

import importlib.util
import inspect
import os
import sys
import traceback

import comfy.model_management

MAX_RESOLUTION = 16384
NODE_CLASS_MAPPINGS = {}
NODE_DISPLAY_NAME_MAPPINGS = {}
EXTENSION_WEB_DIRS = {}
LOADED_MODULE_DIRS = {}


class ShowText:
    """An output node of the host's own."""

    RETURN_TYPES = ()
    FUNCTION = "show"
    OUTPUT_NODE = True
    CATEGORY = "host"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("*",)}}

    @classmethod
    def VALIDATE_INPUTS(cls, input_types):
        return True

    def show(self, value):
        return {"ui": {"text": [repr(value)]}}


def interrupt_processing(value=True):
    comfy.model_management.interrupt_current_processing(value)


def before_node_execution():
    comfy.model_management.throw_exception_if_processing_interrupted()


async def load_custom_node(module_path, ignore=(), module_parent="custom_nodes"):
    name = module_path.replace(".", "_x_")
    try:
        spec = importlib.util.spec_from_file_location(name, os.path.join(module_path, "__init__.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        web = getattr(module, "WEB_DIRECTORY", None)
        if web is not None and os.path.isdir(os.path.join(module_path, web)):
            EXTENSION_WEB_DIRS[os.path.basename(module_path)] = os.path.abspath(os.path.join(module_path, web))
        classes, names = await _declared(module)
    except Exception:
        print(traceback.format_exc(), file=sys.stderr)
        return False
    for key, cls in classes.items():
        cls.RELATIVE_PYTHON_MODULE = f"{module_parent}.{os.path.basename(module_path)}"
        NODE_CLASS_MAPPINGS[key] = cls
    NODE_DISPLAY_NAME_MAPPINGS.update(names)
    return True


async def _declared(module):
    classes = getattr(module, "NODE_CLASS_MAPPINGS", None)
    if classes is not None:
        return classes, getattr(module, "NODE_DISPLAY_NAME_MAPPINGS", None) or {}
    made = module.comfy_entrypoint()
    extension = await made if inspect.isawaitable(made) else made
    listed = await extension.get_node_list()
    schemas = [(cls.GET_SCHEMA(), cls) for cls in listed]
    names = {schema.node_id: schema.display_name for schema, _ in schemas if schema.display_name}
    return {schema.node_id: cls for schema, cls in schemas}, names


NODE_CLASS_MAPPINGS["HostShow"] = ShowText

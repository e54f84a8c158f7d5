"""V3: types, schema and base class, as much as packs and the executor touch."""

import inspect
from dataclasses import dataclass
from enum import Enum

from comfy_api.internal import _ComfyNodeInternal, _NodeOutputInternal, first_real_override


class NumberDisplay(str, Enum):
    number = "number"
    slider = "slider"


class _TypeName(str):
    def __ne__(self, other):
        return False if "*" in (str(self), str(other)) else str.__ne__(self, other)

    __hash__ = str.__hash__


class _Part:
    Parent = None

    @property
    def io_type(self):
        return self.Parent.io_type

    def get_io_type(self):
        return _TypeName(self.io_type)


class Input(_Part):
    def __init__(self, id, display_name=None, optional=False, tooltip=None, lazy=None, default=None, min=None, max=None, options=None,
                 display_mode=None):
        self.id, self.display_name, self.optional, self.tooltip, self.lazy = id, display_name, optional, tooltip, lazy
        self.default, self.min, self.max, self.options, self.display_mode = default, min, max, options, display_mode

    def as_dict(self):
        names = ("display_name", "tooltip", "lazy", "default", "min", "max", "options")
        told = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return told if self.display_mode is None else {**told, "display": self.display_mode.value}


class Output(_Part):
    def __init__(self, id=None, display_name=None, tooltip=None, is_output_list=False):
        self.id, self.display_name, self.tooltip, self.is_output_list = id, display_name, tooltip, is_output_list


class ComfyTypeIO:
    io_type = "*"


def _type(name, io_type):
    made = type(name, (ComfyTypeIO,), {"io_type": _TypeName(io_type), "__module__": __name__})
    made.Input = type("Input", (Input,), {"Parent": made, "__module__": __name__, "__qualname__": f"{name}.Input"})
    made.Output = type("Output", (Output,), {"Parent": made, "__module__": __name__, "__qualname__": f"{name}.Output"})
    return made


def Custom(io_type):
    return _type("CustomComfyType", io_type)


Image, Mask, Int, Float, String, Boolean, Combo, Model = (
    _type(name, name.upper()) for name in ("Image", "Mask", "Int", "Float", "String", "Boolean", "Combo", "Model")
)
AnyType = _type("AnyType", "*")


class Hidden(str, Enum):
    unique_id = "UNIQUE_ID"
    prompt = "PROMPT"
    extra_pnginfo = "EXTRA_PNGINFO"
    dynprompt = "DYNPROMPT"
    auth_token_comfy_org = "AUTH_TOKEN_COMFY_ORG"
    api_key_comfy_org = "API_KEY_COMFY_ORG"


class HiddenHolder:
    def __init__(self, values):
        self.__dict__.update({kind.name: values.get(kind) for kind in Hidden})


@dataclass
class Schema:
    node_id: str
    display_name: str = None
    category: str = "sd"
    inputs: list = None
    outputs: list = None
    hidden: list = None
    description: str = ""
    is_input_list: bool = False
    is_output_node: bool = False
    is_deprecated: bool = False
    is_experimental: bool = False
    not_idempotent: bool = False
    enable_expand: bool = False

    def finalize(self):
        if self.is_output_node:
            self.hidden = list(dict.fromkeys([*(self.hidden or []), Hidden.prompt, Hidden.extra_pnginfo]))
        for index, output in enumerate(self.outputs or []):
            output.id = output.id or f"_{index}_{output.io_type}_"

    def v1_inputs(self):
        groups = {"required": {}}
        for one in self.inputs or []:
            groups.setdefault("optional" if one.optional else "required", {})[one.id] = (one.get_io_type(), one.as_dict())
        if self.hidden:
            groups["hidden"] = {kind.name: (kind.value,) for kind in self.hidden}
        return groups


class NodeOutput(_NodeOutputInternal):
    def __init__(self, *args, ui=None, expand=None, block_execution=None):
        self.args, self.ui, self.expand, self.block_execution = args, ui, expand, block_execution

    @property
    def result(self):
        return self.args or None


class _class_property:
    def __init__(self, function):
        self.function = function

    def __get__(self, instance, owner):
        return self.function(owner)


class ComfyNode(_ComfyNodeInternal):
    RELATIVE_PYTHON_MODULE = None
    SCHEMA = None
    hidden = None

    @classmethod
    def define_schema(cls):
        raise NotImplementedError

    @classmethod
    def execute(cls, **kwargs):
        raise NotImplementedError

    @classmethod
    def validate_inputs(cls, **kwargs):
        raise NotImplementedError

    @classmethod
    def fingerprint_inputs(cls, **kwargs):
        raise NotImplementedError

    @classmethod
    def check_lazy_status(cls, **kwargs):
        return [name for name, value in kwargs.items() if value is None]

    @classmethod
    def GET_BASE_CLASS(cls):
        return ComfyNode

    @classmethod
    def VALIDATE_CLASS(cls):
        for name in ("define_schema", "execute"):
            if first_real_override(cls, name) is None:
                raise TypeError(f"{cls.__name__} has no {name}")

    @classmethod
    def FINALIZE_SCHEMA(cls):
        schema = cls.define_schema()
        schema.finalize()
        return schema

    @classmethod
    def GET_SCHEMA(cls):
        cls.VALIDATE_CLASS()
        cls.SCHEMA = cls.FINALIZE_SCHEMA()
        return cls.SCHEMA

    @classmethod
    def INPUT_TYPES(cls, include_hidden=True, return_schema=False):
        schema = cls.FINALIZE_SCHEMA()
        groups = schema.v1_inputs()
        if not include_hidden:
            groups.pop("hidden", None)
        return (groups, schema) if return_schema else groups

    @classmethod
    def PREPARE_CLASS_CLONE(cls, hidden_inputs):
        clone = type(f"{cls.__name__}Clone", (cls,), dict(cls.__dict__))
        clone.hidden = HiddenHolder(hidden_inputs or {})
        return clone

    FUNCTION = _class_property(lambda cls: "EXECUTE_NORMALIZED_ASYNC" if inspect.iscoroutinefunction(cls.execute) else "EXECUTE_NORMALIZED")
    OUTPUT_NODE = _class_property(lambda cls: cls.FINALIZE_SCHEMA().is_output_node)
    INPUT_IS_LIST = _class_property(lambda cls: cls.FINALIZE_SCHEMA().is_input_list)
    NOT_IDEMPOTENT = _class_property(lambda cls: cls.FINALIZE_SCHEMA().not_idempotent)
    CATEGORY = _class_property(lambda cls: cls.FINALIZE_SCHEMA().category)
    DESCRIPTION = _class_property(lambda cls: cls.FINALIZE_SCHEMA().description)
    RETURN_TYPES = _class_property(lambda cls: [one.io_type for one in cls.FINALIZE_SCHEMA().outputs or []])
    RETURN_NAMES = _class_property(lambda cls: [one.display_name or one.io_type for one in cls.FINALIZE_SCHEMA().outputs or []])
    OUTPUT_IS_LIST = _class_property(lambda cls: [one.is_output_list for one in cls.FINALIZE_SCHEMA().outputs or []])

    @classmethod
    def EXECUTE_NORMALIZED(cls, *args, **kwargs):
        return _normalised(cls.execute(*args, **kwargs))

    @classmethod
    async def EXECUTE_NORMALIZED_ASYNC(cls, *args, **kwargs):
        return _normalised(await cls.execute(*args, **kwargs))

    @classmethod
    def GET_NODE_INFO_V1(cls):
        schema = cls.FINALIZE_SCHEMA()
        groups = schema.v1_inputs()
        return {
            "input": groups, "input_order": {name: list(group) for name, group in groups.items()}, "output": cls.RETURN_TYPES,
            "output_is_list": cls.OUTPUT_IS_LIST, "output_name": cls.RETURN_NAMES, "name": schema.node_id,
            "display_name": schema.display_name, "description": schema.description, "category": schema.category,
            "output_node": schema.is_output_node, "python_module": cls.RELATIVE_PYTHON_MODULE,
        }


def _normalised(value):
    if value is None:
        return NodeOutput()
    if isinstance(value, NodeOutput):
        return value
    return NodeOutput(*value)



"""What a host calls by name in a worker to run node packs: `comfy_env.worker.nodes:describe`, `…:execute` and friends.

Every function takes the pack's folder first and imports the pack at its first use. Arguments and answers of all but
`execute` are JSON values.
"""

import platform
import sys
import traceback

from . import node_info
from .node_packs import Packs, finished
from .wire import coded

PACKS = Packs()


def describe(pack_root, distributions=()):
    """Return what the pack offers and what it runs on.

    `nodes` maps class names to descriptions, `broken` maps the classes whose INPUT_TYPES raised to the reason,
    `versions` holds the installed version of each of `distributions` (None: not installed).
    """
    pack = PACKS.load(pack_root)
    nodes, broken = {}, {}
    for name, node_class in pack.classes.items():
        try:
            nodes[str(name)] = node_info.node_info(node_class, pack.display_names.get(name, name))
        except Exception as error:  # a pack's own code: one bad class must not hide the others
            broken[str(name)] = "".join(traceback.format_exception_only(type(error), error)).strip()
    return {
        "nodes": nodes,
        "broken": broken,
        "python": platform.python_version(),
        "versions": node_info.versions(distributions),
    }


def execute(pack_root, class_name, instance_key, kwargs):
    """Run one node: its FUNCTION, on the instance that belongs to `instance_key`; return what it returns."""
    instance = PACKS.load(pack_root).instance(class_name, instance_key)
    return finished(getattr(instance, type(instance).FUNCTION)(**coded.opened(kwargs)))


def is_changed(pack_root, class_name, kwargs):
    """Return what the class's IS_CHANGED says for the constant inputs; linked ones are None."""
    return finished(PACKS.load(pack_root).node_class(class_name).IS_CHANGED(**kwargs))


def validate(pack_root, class_name, kwargs):
    """Return what the class's VALIDATE_INPUTS says: True, or the reason of a refusal."""
    return finished(PACKS.load(pack_root).node_class(class_name).VALIDATE_INPUTS(**kwargs))


def forget(pack_root, prefix):
    """Drop the instances whose key starts with `prefix`; return how many there were."""
    return PACKS.load(pack_root).forget(prefix)


def about(modules=(), distributions=()):
    """Return which interpreter this is and which modules it really imports: {name: [version, file]}."""
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "prefix": sys.prefix,
        "modules": node_info.modules(modules),
        "versions": node_info.versions(distributions),
    }

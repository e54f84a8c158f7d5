"""Stand-ins for the `comfy` modules that packs import, for a worker that has no ComfyUI.

Only what works without torch is here; any other name of these modules is an ImportError that says so.
"""

import contextlib
import importlib.util
import sys
import types

from . import model_management, utils

_MODULES = {"utils": utils, "model_management": model_management}


def install():
    """Make `comfy.utils` and `comfy.model_management` importable unless real ones are; return whether that was needed."""
    if "comfy" in sys.modules or _real():
        return False
    package = types.ModuleType("comfy", __doc__)
    package.__path__ = []
    sys.modules["comfy"] = package
    for name, module in _MODULES.items():
        setattr(package, name, module)
        sys.modules["comfy." + name] = module
    return True


def _real():
    with contextlib.suppress(ModuleNotFoundError):  # neither `comfy` nor `comfy.utils`: there is none
        return importlib.util.find_spec("comfy.utils") is not None
    return False

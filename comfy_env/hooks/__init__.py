"""How the core and what others supply meet: the hooks, who implements them, and the relay that asks one backend.

Knows pluggy and nothing of pools, processes or ComfyUI.
"""

from comfy_env.hooks.observers import Observers
from comfy_env.hooks.registry import Registry
from comfy_env.hooks.relay import Relay
from comfy_env.hooks.specs import hookimpl, hookspec

__all__ = ["Observers", "Registry", "Relay", "hookimpl", "hookspec"]

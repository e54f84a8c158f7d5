"""Run node packs with conflicting dependencies side by side, each in its own Python environment.

Importing this package resolves nothing: every public name is loaded when it is first asked for, so a host that
installs comfy_env and uses no isolated pack pays a few milliseconds, no thread and no open file.
"""

from importlib import import_module

__contract__ = 1
__version__ = "1!1.0.0.dev0"

_HOMES = {
    "EnvPlan": "comfy_env.packs.plan",
    "WorkerPool": "comfy_env.pool",
    "CallOptions": "comfy_env.values",
    "NodeContext": "comfy_env.values",
    "Progress": "comfy_env.values",
    "RemoteRef": "comfy_env.values",
    "Settings": "comfy_env.settings",
    "register_nodes": "comfy_env.comfyui.entry",
    "install": "comfy_env.comfyui.installing",
    "setup_env": "comfy_env.comfyui.prestart",
    "copy_files": "comfy_env.comfyui.prestart",
    "register_serializer": "comfy_env.comfyui.serializers",
    "hookimpl": "comfy_env.hooks",
    "ComfyEnvError": "comfy_env.errors",
    "CallFailed": "comfy_env.errors",
    "NodeRaised": "comfy_env.errors",
    "WorkerCrashed": "comfy_env.errors",
    "CallSilent": "comfy_env.errors",
    "Interrupted": "comfy_env.errors",
    "ReferenceLost": "comfy_env.errors",
    "HookStopped": "comfy_env.errors",
    "CallWithdrawn": "comfy_env.errors",
    "SpawnFailed": "comfy_env.errors",
    "InterpreterMissing": "comfy_env.errors",
    "DiedBeforeJoining": "comfy_env.errors",
    "BirthSilent": "comfy_env.errors",
    "TransportRefused": "comfy_env.errors",
    "EnvNotBuilt": "comfy_env.errors",
    "EnvMoved": "comfy_env.errors",
    "Parked": "comfy_env.errors",
    "Wedged": "comfy_env.errors",
    "PoolClosed": "comfy_env.errors",
    "LaneBusy": "comfy_env.errors",
    "LaneLost": "comfy_env.errors",
    "FrameDamaged": "comfy_env.errors",
    "DecodeRefused": "comfy_env.errors",
    "EncodeRefused": "comfy_env.errors",
    "PlanError": "comfy_env.errors",
    "BuildFailed": "comfy_env.errors",
    "BuildCancelled": "comfy_env.errors",
    "ToolTooOld": "comfy_env.errors",
    "Unsatisfiable": "comfy_env.errors",
    "PlatformMissing": "comfy_env.errors",
    "PackageDamaged": "comfy_env.errors",
    "BackendError": "comfy_env.errors",
}

_REMOVED = ("wrap_nodes", "isolated", "VenvWorker", "IsolatedEnvManager")
"""Names of other releases under this name; a pack that still uses one is told what to do."""

__all__ = sorted([*_HOMES, "__contract__", "__version__"])


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if name in _REMOVED:
        raise ImportError(f"comfy_env has no {name} any more: run `comfy-env migrate PACK` to see what replaces it")
    if home is None:
        raise AttributeError(f"comfy_env has no public name {name!r}; it offers: {', '.join(sorted(_HOMES))}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)

"""Answers for names that need a real ComfyUI."""


def missing(module, name):
    """Return the error for `name`, which `module`'s stand-in does not have."""
    if name.startswith("__"):
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    return ImportError(f"{module}.{name} needs torch and ComfyUI in this environment; this worker has neither", name=module)

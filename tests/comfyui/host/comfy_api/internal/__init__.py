class _ComfyNodeInternal:
    pass


class _NodeOutputInternal:
    pass


def first_real_override(cls, name, *, base=None):
    """Return a method bound to `cls` if a class below the base wrote it, else None."""
    base = base or cls.GET_BASE_CLASS()
    for one in cls.mro():
        if one is base:
            return None
        if name in one.__dict__:
            return getattr(cls, name)
    return None

from .nodes import NODE_CLASS_MAPPINGS  # noqa: F401

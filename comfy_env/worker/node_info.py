"""Describes V1 node classes as JSON: everything a host must know to check a workflow and call its nodes."""

import importlib
import importlib.metadata
import inspect

METHODS = ("IS_CHANGED", "VALIDATE_INPUTS", "check_lazy_status")
_PROBE = "comfy_env probe of a name nobody declares"


def node_info(node_class, display_name):
    """Return the JSON-able description of one class; raises whatever its INPUT_TYPES raises, and TypeError for what cannot be called."""
    inputs = node_class.INPUT_TYPES()
    _check(node_class)
    return {
        "input": {group: _group(inputs.get(group) or {}) for group in ("required", "optional")},
        "hidden": {str(name): _type(kind) for name, kind in (inputs.get("hidden") or {}).items()},
        "open": any(_PROBE in (inputs.get(group) or {}) for group in ("required", "optional")),
        "return_types": [_type(kind) for kind in getattr(node_class, "RETURN_TYPES", ())],
        "return_names": [str(name) for name in getattr(node_class, "RETURN_NAMES", None) or ()],
        "function": node_class.FUNCTION,
        "category": str(getattr(node_class, "CATEGORY", "")),
        "display_name": str(display_name),
        "output_node": bool(getattr(node_class, "OUTPUT_NODE", False)),
        "input_is_list": bool(getattr(node_class, "INPUT_IS_LIST", False)),
        "output_is_list": [bool(one) for one in getattr(node_class, "OUTPUT_IS_LIST", None) or ()],
        "not_idempotent": bool(getattr(node_class, "NOT_IDEMPOTENT", False)),
        "methods": [name for name in METHODS if hasattr(node_class, name)],
        "validates": _validated(node_class),
    }


def _check(node_class):
    returns = getattr(node_class, "RETURN_TYPES", ())
    if isinstance(returns, str):
        raise TypeError("its RETURN_TYPES is the one text %r: write (%r,)" % (returns, returns))
    function = getattr(node_class, "FUNCTION", None)
    if not isinstance(function, str) or not callable(getattr(node_class, function, None)):
        raise TypeError("its FUNCTION is %r, which names no method of it" % (function,))


def _group(inputs):
    return {str(name): _input(declared) for name, declared in inputs.items()}


def _input(declared):
    """Return [type, options]; a declaration that is not JSON keeps the type '*', which accepts anything."""
    parts = tuple(declared) if isinstance(declared, (tuple, list)) else (declared,)
    options = parts[1] if len(parts) > 1 and isinstance(parts[1], dict) else {}
    return [_type(parts[0]) if parts else "*", {str(k): plain(v) for k, v in options.items() if is_plain(v)}]


def _type(kind):
    """Return a type's name, or a combo's choices."""
    if isinstance(kind, str):
        return str.__str__(kind)
    return plain(kind) if isinstance(kind, (list, tuple)) and is_plain(kind) else "*"


def is_plain(value):
    """Say whether `value` is made of JSON's types only."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(is_plain(item) for item in value)
    return value is None or isinstance(value, (str, int, float, bool))


def plain(value):
    """Return the JSON twin of a plain value: lists for tuples, base types for their subclasses."""
    if isinstance(value, dict):
        return {str.__str__(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    for base in (bool, int, float, str):
        if isinstance(value, base):
            return value if base is bool else base(value) if base is not str else str.__str__(value)
    return None


def _validated(node_class):
    """Return the argument names of VALIDATE_INPUTS, '**' among them when it takes any."""
    function = getattr(node_class, "VALIDATE_INPUTS", None)
    if function is None:
        return []
    parameters = inspect.signature(function).parameters.values()
    return ["**" if p.kind is p.VAR_KEYWORD else p.name for p in parameters]


def versions(distributions):
    """Return {distribution: installed version or None}."""
    return {name: _version(name) for name in distributions}


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def modules(names):
    """Import each module and return {name: [version or None, file or None]}."""
    found = {name: importlib.import_module(name) for name in names}
    return {name: [getattr(m, "__version__", None), getattr(m, "__file__", None)] for name, m in found.items()}

"""Whether a plugin may be registered: every complaint names the plugin, the hook and the argument.

pluggy would take an implementation that misses an argument or lacks its marker without a word; here both are refused,
so a misspelled hook never becomes a hook that is silently not called.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pluggy

from comfy_env.errors import BackendError
from comfy_env.hooks.observe import Observe
from comfy_env.hooks.provision import Provision
from comfy_env.hooks.specs import PROJECT, Lifecycle
from comfy_env.values import CAPABILITIES

PREFIX = "comfy_env_"
REQUIRED = ("comfy_env_spawn", "comfy_env_transport", "comfy_env_verify", "comfy_env_release", "comfy_env_kill")
BACKEND_SPECS = (Lifecycle, Provision)
OBSERVER_SPECS = (Observe,)


class Manager(pluggy.PluginManager):
    """pluggy's manager, for the given classes of hook specifications."""

    def __init__(self, specs: Sequence[type]) -> None:
        super().__init__(PROJECT)
        for spec in specs:
            self.add_hookspecs(spec)

    def admit(self, plugin: Any, what: str, role: str = "backend") -> None:
        """Register a plugin, or raise BackendError that says what is wrong with it; `what` names it for people.

        `role` is "backend", "wrapper" (its hooks surround a backend's and may not take their place) or "observer"
        (its hooks surround nothing).
        """
        problems = [*_problems(self, plugin, role)]
        if problems:
            raise BackendError(f"{what} is refused: {'; '.join(problems)}", hint="the hooks' signatures are in comfy_env/hooks/")
        try:
            self.register(plugin, name=what)
        except (pluggy.PluginValidationError, ValueError) as problem:
            raise BackendError(f"{what} is refused: {problem}") from problem

    def implements(self, plugin: Any, hook: str) -> bool:
        """Tell whether a plugin itself answers a hook; surrounding it does not count."""
        impls = getattr(self.hook, hook).get_hookimpls()
        return any(impl.plugin is plugin and not (impl.wrapper or impl.hookwrapper) for impl in impls)


def _problems(manager: Manager, plugin: Any, role: str) -> Iterator[str]:
    if isinstance(plugin, type):
        yield f"{plugin.__qualname__} is a class; give an instance of it"
        return
    for name, function, options in _routines(manager, plugin):
        yield from _marker_problems(manager, name) if options is None else _hook_problems(manager, name, function, options, role)


def _routines(manager: Manager, plugin: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield each of a plugin's routines that is, or looks as if it should be, a hook."""
    for name in dir(plugin):
        function = inspect.getattr_static(plugin, name, None)
        if isinstance(function, property) or name.startswith("__"):
            continue
        function = getattr(plugin, name)
        if not inspect.isroutine(function):
            continue
        options = getattr(function, PROJECT + "_impl", None)
        if options is not None or name.startswith(PREFIX):
            yield name, function, options


def _marker_problems(manager: Manager, name: str) -> Iterator[str]:
    known = _known(manager)
    if name in known:
        yield f"{name} lacks the @hookimpl marker"
    elif near := _near(name, known):
        yield f"{name} is no hook (did you mean {near}?)"


def _hook_problems(manager: Manager, name: str, function: Any, options: Any, role: str) -> Iterator[str]:
    known = _known(manager)
    hook = options.get("specname") or name
    if hook not in known:
        near = _near(hook, known)
        yield f"{name} is no hook" + (f" (did you mean {near}?)" if near else f"; the hooks are {', '.join(sorted(known))}")
        return
    yield from _argument_problems(name, function, known[hook])
    yield from _role_problems(hook, bool(options.get("wrapper") or options.get("hookwrapper")), role)


def _role_problems(hook: str, wraps: bool, role: str) -> Iterator[str]:
    if hook == "comfy_env_launch":
        if wraps:
            yield f"{hook} cannot be a wrapper: return the launch to use"
    elif role == "wrapper" and not wraps:
        yield f"{hook} would take the backend's place: mark it @hookimpl(wrapper=True)"
    elif role == "observer" and wraps:
        yield f"{hook} cannot be a wrapper: observers only listen"


def _argument_problems(name: str, function: Any, wanted: tuple[str, ...]) -> Iterator[str]:
    for given in inspect.signature(function).parameters.values():
        if given.kind in (given.VAR_POSITIONAL, given.VAR_KEYWORD):
            yield f"{name}: *{given.name} would stay empty; name the arguments"
        elif given.default is not given.empty:
            yield f"{name}: argument {given.name!r} has a default, so it would never be filled"
        elif given.name not in wanted:
            near = _near(given.name, wanted)
            yield f"{name}: no argument {given.name!r}" + (f" (did you mean {near!r}?)" if near else f"; it has {', '.join(wanted)}")


def _known(manager: Manager) -> dict[str, tuple[str, ...]]:
    hooks = {name: caller for name, caller in vars(manager.hook).items() if caller.spec is not None}
    return {name: tuple(caller.spec.argnames) for name, caller in hooks.items()}


def _near(name: str, known: Iterable[str]) -> str:
    return next(iter(difflib.get_close_matches(name, list(known), 1, 0.75)), "")


def require_verbs(manager: Manager, plugin: Any, what: str) -> None:
    """Raise BackendError unless the plugin implements all five lifecycle verbs itself."""
    missing = [verb for verb in REQUIRED if not manager.implements(plugin, verb)]
    if missing:
        hint = "implement the five lifecycle verbs; comfy_env.backends.local.LocalBackend has them all"
        raise BackendError(f"{what} is refused: it lacks {', '.join(missing)}", hint=hint)


def capabilities_of(plugin: Any, what: str) -> frozenset[str]:
    """Return what a backend claims; raises BackendError unless it is a set of known capabilities."""
    claimed = getattr(plugin, "capabilities", None)
    if not isinstance(claimed, frozenset | set):
        raise BackendError(f"{what} is refused: it declares no `capabilities`; a frozenset of names is wanted (it may be empty)")
    unknown = sorted(str(name) for name in claimed if name not in CAPABILITIES)
    if unknown:
        near = {name: _near(name, CAPABILITIES) for name in unknown}
        told = ", ".join(f"{name!r}" + (f" (did you mean {hint!r}?)" if hint else "") for name, hint in near.items())
        raise BackendError(f"{what} is refused: unknown capabilities {told}; known are {', '.join(sorted(CAPABILITIES))}")
    return frozenset(claimed)

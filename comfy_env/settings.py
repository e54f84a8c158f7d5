"""Every setting of this package: its environment variable, unit, default and range, read once into one frozen object.

`Settings()` holds the defaults; `Settings.read(environ)` overlays the variables that are set. A value that cannot be
read or is out of range is a `PlanError` that names the variable, so a typo never becomes a silent default.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from comfy_env.checks import path_text
from comfy_env.errors import PlanError

PREFIX = "COMFY_ENV_"
SWITCH = "0, 1, 2"
ON_OR_OFF = "0, 1"
SWITCHES = (SWITCH, ON_OR_OFF)
"""The units of settings that true and false may stand for, too."""


def _setting(default: Any, variable: str, unit: str, help: str, low: float = 0, high: float = 86_400) -> Any:
    meta = {"variable": variable, "unit": unit, "help": help, "low": low, "high": high}
    return field(default=default, metadata=meta)


setting = _setting
"""What the fields of other rooms' settings classes are made with."""


@dataclass(frozen=True)
class Settings:
    """What can be tuned. Times are seconds of lived time: a suspended machine lives none.

    ``from_environment`` tells that `read` asked this process's own variables: what is read anew at every tick then is.
    """

    from_environment = False

    call_silence: float = _setting(0.0, "COMFY_ENV_CALL_SILENCE_SECONDS", "s", "silence that ends a call; 0 is no limit", high=1e9)
    birth: float = _setting(60.0, "COMFY_ENV_BIRTH_SECONDS", "s", "silence that ends a worker being born", low=0.05)
    spawn: float = _setting(10.0, "COMFY_ENV_SPAWN_SECONDS", "s", "limit of a backend's spawn", low=0.05)
    verify: float = _setting(60.0, "COMFY_ENV_VERIFY_SECONDS", "s", "limit of a backend's verify", low=0.05)
    ping: float = _setting(5.0, "COMFY_ENV_PING_SECONDS", "s", "limit of a health check", low=0.05)
    ping_idle: float = _setting(60.0, "COMFY_ENV_PING_IDLE_SECONDS", "s", "idle time after which a worker is pinged before its next call")
    release: float = _setting(10.0, "COMFY_ENV_RELEASE_SECONDS", "s", "limit of a backend's release", low=0.05)
    kill: float = _setting(2.0, "COMFY_ENV_KILL_SECONDS", "s", "limit of a kill before the worker counts as wedged", low=0.05)
    stack: float = _setting(0.2, "COMFY_ENV_STACK_SECONDS", "s", "time a worker gets to show its stack before a kill")
    shutdown: float = _setting(5.0, "COMFY_ENV_SHUTDOWN_SECONDS", "s", "one deadline for the clean stop of all workers")
    command_lock: float = _setting(30.0, "COMFY_ENV_COMMAND_LOCK_SECONDS", "s", "how long a command waits for a worker's lane")
    side_reply: float = _setting(1.0, "COMFY_ENV_SIDE_REPLY_SECONDS", "s", "limit of a question on the side lane", low=0.01)
    side_rest: float = _setting(5.0, "COMFY_ENV_SIDE_REST_SECONDS", "s", "rest of a side lane that did not answer")
    interrupt_grace: float = _setting(5.0, "COMFY_ENV_INTERRUPT_GRACE_SECONDS", "s", "time an interrupted call gets before it is killed")
    idle_release: float = _setting(60.0, "COMFY_ENV_IDLE_RELEASE_SECONDS", "s", "idle time before a worker is asked to release; 0: never")
    idle_reap: float = _setting(
        1800.0, "COMFY_ENV_IDLE_REAP_SECONDS", "s", "idle time before a worker is ended; 0: never; read anew at every tick", high=1e9
    )
    tick: float = _setting(10.0, "COMFY_ENV_TICK_SECONDS", "s", "period of the idle sweep", low=0.01)
    max_calls: int = _setting(0, "COMFY_ENV_MAX_CALLS", "calls", "calls after which an idle worker is replaced; 0: never", high=1e9)
    max_rss: float = _setting(0.0, "COMFY_ENV_MAX_RSS_MIB", "MiB", "memory above which an idle worker is replaced; 0: never", high=1e9)
    source_poll: float = _setting(0.0, "COMFY_ENV_SOURCE_POLL_SECONDS", "s", "how often a pack's sources are looked at; 0: never")
    crash_window: float = _setting(60.0, "COMFY_ENV_CRASH_WINDOW_SECONDS", "s", "window in which deaths are counted")
    crash_limit: int = _setting(3, "COMFY_ENV_CRASH_LIMIT", "deaths", "deaths in the window that park an environment", low=1, high=1000)
    park: float = _setting(30.0, "COMFY_ENV_PARK_SECONDS", "s", "first pause of a parked environment; doubles each time", low=0.01)
    park_most: float = _setting(600.0, "COMFY_ENV_PARK_MOST_SECONDS", "s", "longest pause of a parked environment", low=0.01)
    zygote: int = _setting(1, "COMFY_ENV_ZYGOTE", SWITCH, "zygotes; 0: never, 1: where there is no GPU, 2: always", high=2)
    gpu: int = _setting(
        1, "COMFY_ENV_GPU", SWITCH, "device memory; 0: not shared, 1: a worker copies inputs there, 2: it reads them in place", high=2
    )
    huge_pages: int = _setting(
        1, "COMFY_ENV_HUGE_PAGES", ON_OR_OFF, "whether a worker's allocator asks for huge pages; only where glibc is 2.35 or newer", high=1
    )
    zygote_idle: float = _setting(
        3600.0, "COMFY_ENV_ZYGOTE_IDLE_SECONDS", "s", "time after an environment's last worker at which its zygote ends", high=1e9
    )
    envs_folder: Path | None = _setting(None, "COMFY_ENV_ENVS", "folder", "where environments are built (default: the user's data folder)")
    runtime_folder: Path | None = _setting(None, "COMFY_ENV_RUNTIME", "folder", "where run folders live (default: the user's own)")
    log_folder: Path | None = _setting(
        None, "COMFY_ENV_LOGS", "folder", "where logs go (default: of builds the user's log folder, of workers `logs` in the run folder)"
    )
    uv: str = _setting("", "COMFY_ENV_UV", "path", "the uv to build with; 'off' uses venv and pip")
    pixi: str = _setting("", "COMFY_ENV_PIXI", "path", "the pixi to build with; 'off' uses py-rattler")
    cuda_wheels_index: str = _setting("", "COMFY_ENV_CUDA_WHEELS_INDEX", "URL", "index of CUDA wheels")

    def __post_init__(self) -> None:
        typed(self)

    def checked(self) -> Settings:
        """Return these settings if every number is in its range; raises PlanError."""
        for spec in fields(self):
            if spec.type in ("float", "int"):
                _check_range(spec, spec.name, getattr(self, spec.name))
        return self

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Return the settings that the environment variables ask for; raises PlanError on a value that cannot be used."""
        found = cls(**given(cls, environ))
        object.__setattr__(found, "from_environment", environ is None)
        return found

    @classmethod
    def read_one(cls, name: str, environ: Mapping[str, str] | None = None) -> Any:
        """Return what the environment says of one setting now, else its default; raises PlanError on a value that cannot be used."""
        spec = cls.__dataclass_fields__[name]
        return _given(spec, os.environ if environ is None else environ, spec.default)

    def limited(self, limits: Iterable[tuple[str, float]]) -> Settings:
        """Return these settings with an environment's own limits; raises PlanError on a name or value that is none."""
        own: dict[str, Any] = {}
        specs = {spec.name: spec for spec in fields(self) if spec.type in ("float", "int")}
        for name, value in limits:
            if name not in specs:
                raise PlanError(f"{name!r} is no limit", hint=f"limits are {', '.join(specs)}")
            is_switched = isinstance(value, bool) and specs[name].metadata["unit"] in SWITCHES
            own[name] = _parse(specs[name], str(int(value) if is_switched else value))
        return replace(self, **own)


def given(cls: type, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the fields of a settings class whose variables are set, parsed; raises PlanError on a value that cannot be used."""
    environ = os.environ if environ is None else environ
    return {f.name: _given(f, environ) for f in fields(cls) if environ.get(f.metadata["variable"])}


def typed(settings: Any) -> None:
    """Bring the fields of a settings object that is being made to their types; raises PlanError where one cannot be."""
    for spec in fields(settings):
        value = getattr(settings, spec.name)
        right = _TYPES[spec.type.partition(" ")[0]](spec, value)
        if right is not value:
            object.__setattr__(settings, spec.name, right)


OWN_VARIABLES = frozenset(f"{PREFIX}{name}" for name in (
    "NONCE", "HOST_NONCE", "ENV", "GENERATION", "ORCH_HANDOVER", "ORCH_GENERATION", "COMFYUI", "COMFYUI_PYTHON",
))
"""Variables with our prefix that are no settings: what workers and replacements are told, and where tests find a real ComfyUI."""


def variables(*owners: type) -> list[str]:
    """Return the names of the environment variables of settings classes."""
    return [spec.metadata["variable"] for owner in owners for spec in fields(owner)]


def strangers(known: Iterable[str], environ: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Return the variables that look like settings and are none, each with the one that was probably meant ('' for none)."""
    known = list(known)
    names = sorted(os.environ if environ is None else environ)
    odd = [name for name in names if name.upper().startswith(PREFIX) and name not in OWN_VARIABLES and name not in known]
    return [(name, next(iter(difflib.get_close_matches(name.upper(), known, 1)), "")) for name in odd]


def _given(spec: Any, environ: Mapping[str, str], default: Any = None) -> Any:
    text = environ.get(spec.metadata["variable"])
    return _parse(spec, text) if text else default


def _parse(spec: Any, text: str) -> Any:
    variable, unit = spec.metadata["variable"], spec.metadata["unit"]
    if spec.type.startswith("Path"):
        return _expanded(variable, text)
    if spec.type == "str":
        return text
    try:
        value = int(text) if spec.type == "int" else float(text)
    except ValueError:
        raise PlanError(f"{variable}={text!r} is not a number of {unit}") from None
    _check_range(spec, variable, value)
    return value


def _check_range(spec: Any, name: str, value: Any) -> None:
    low, high, unit = (spec.metadata[part] for part in ("low", "high", "unit"))
    if not low <= value <= high:
        raise PlanError(f"{name}={value!r} is out of range ({low:g} to {high:g} {unit})")


def _number(spec: Any, value: Any) -> Any:
    if isinstance(value, bool) and spec.metadata["unit"] in SWITCHES:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(spec, value, f"a number ({spec.metadata['unit']})")
    return value


def _whole_number(spec: Any, value: Any) -> Any:
    if isinstance(value, float):
        raise _wrong(spec, value, f"a whole number ({spec.metadata['unit']})")
    return _number(spec, value)


def _text(spec: Any, value: Any) -> str:
    if spec.metadata["unit"] == "path" and isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise _wrong(spec, value, f"a text ({spec.metadata['unit']})")
    return value


def _folder(spec: Any, value: Any) -> Path | None:
    if value is None:
        return None
    path = path_text(value)
    if path is None:
        raise _wrong(spec, value, "the path of a folder")
    return _expanded(spec.name, path)


def _expanded(name: str, path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # what pathlib raises for a user there is not
        raise PlanError(f"{name}={path!r} cannot be used: {error}") from None


_TYPES = {"float": _number, "int": _whole_number, "str": _text, "Path": _folder}


def _wrong(spec: Any, value: Any, wanted: str) -> PlanError:
    return PlanError(f"{spec.name}={value!r} is not {wanted}")

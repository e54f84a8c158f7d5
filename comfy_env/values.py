"""Frozen values that cross a hook or the core, and the shapes of the two objects a backend hands over.

Nothing in here acts: no file is opened, no process looked at, no pluggy imported.
"""

from __future__ import annotations

import enum
import os
import signal
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from comfy_env import checks
from comfy_env.errors import PlanError

CAPABILITIES = frozenset({
    "own_process", "survives_crash", "killable", "own_dependencies", "passes_descriptors",
    "zero_copy_cpu", "zero_copy_gpu", "forkable", "remote",
})
"""What a backend may claim; the conformance suite tests each claim."""


# ---------------------------------------------------------------- what is wanted

@dataclass(frozen=True)
class PackId:
    """A node pack's stable identity: its publisher or repository and what it calls itself.

    One that has neither is known by its name and the real place of its folder: two strangers may have the same name.
    """

    id: str
    version: str = ""
    url: str = ""
    folder: Path | None = None

    def __post_init__(self) -> None:
        checks.be_kind(self, str, "a text", "id", "version", "url")
        checks.be_paths(self, "folder")


@dataclass(frozen=True)
class Conda:
    """The conda part of a plan."""

    channels: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checks.be_several(self, str, "texts", "channels", "dependencies")


@dataclass(frozen=True)
class EnvPlan:
    """What an environment must be. ``key`` names it everywhere: in the pool, on disk, in messages.

    ``python`` is a version or specifier ("3.10", ">=3.9,<3.13"; None: the host's own), ``interpreter`` an existing
    interpreter that is used as it is and never changed, ``limits`` overrides settings by field name, ``source`` tells
    where the plan was declared (file:line).
    """

    key: str
    backend: str = "venv"
    root: Path | None = None
    python: str | None = None
    dependencies: tuple[str, ...] = ()
    interpreter: Path | None = None
    import_roots: tuple[Path, ...] = ()
    nodes: tuple[str, ...] = ()
    torch: str = "none"
    indexes: tuple[str, ...] = ()
    conda: Conda | None = None
    variables: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    device: str | None = None
    limits: tuple[tuple[str, float], ...] = ()
    allow_source_builds: bool = False
    api: str = ""
    comfy: bool = False
    fallback: str | None = None
    pack: PackId | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if not _is_name(self.key):
            raise PlanError(f"{self.key!r} cannot be an environment's key: use letters, digits, '-', '_' and '.'")
        checks.be_kind(self, str, "a text", "backend", "torch", "api", "source")
        checks.be_kind(self, str | None, "a text", "device", "fallback")
        _check_python(self)
        checks.be_kind(self, bool, "True or False", "allow_source_builds", "comfy")
        checks.be_kind(self, Conda | None, "a Conda(channels, dependencies)", "conda")
        checks.be_kind(self, PackId | None, "a PackId(...)", "pack")
        checks.be_several(self, str, "texts", "dependencies", "nodes", "indexes", "secrets")
        checks.be_several(self, str | os.PathLike, "paths", "import_roots")
        checks.be_paths(self, "root", "interpreter")
        object.__setattr__(self, "import_roots", tuple(checks.path(self, "import_roots", path) for path in self.import_roots))
        checks.be_pairs(self, "variables", str | int | float, "text")
        checks.be_pairs(self, "limits", int | float, "number")

    @classmethod
    def existing(cls, python: str | Path, key: str, *, root: str | Path | None = None, **more: Any) -> EnvPlan:
        """Return a plan that uses an interpreter as it is: nothing is built, installed or changed."""
        if python is None:
            raise PlanError("EnvPlan.existing(python=None): the path of an interpreter is wanted")
        return cls(key=key, interpreter=python, root=root, **more)  # type: ignore[arg-type]  # paths from here on

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders names are imported from in the worker, in order."""
        return ((self.root,) if self.root else ()) + self.import_roots


_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of characters that are not seen but do something: controls, marks of direction, ends of lines, half characters."""


def _is_name(key: Any) -> bool:
    """Tell whether a key can stand in a path, a log and on a terminal."""
    if not isinstance(key, str) or key in ("", ".", ".."):
        return False
    return not any(c in "/\\" or unicodedata.category(c) in _UNSEEN for c in key)


def _check_python(plan: EnvPlan) -> None:
    given = plan.python
    if given is not None and (not isinstance(given, str) or os.sep in given):
        hint = "write python='3.10' or python='>=3.9,<3.13'; the path of an interpreter is given as interpreter="
        raise PlanError(f"EnvPlan(python={given!r}): a version is wanted, as text", hint=hint)


# ---------------------------------------------------------------- what is there

class EnvStatus(enum.Enum):
    MISSING = "missing"
    BUILDING = "building"
    READY = "ready"
    STALE = "stale"
    BROKEN = "broken"
    MOVED = "moved"


@dataclass(frozen=True)
class EnvState:
    """What a probe of an environment found. ``fix`` is the command that mends it.

    ``provider`` is the tool that made it, ``channels`` where its conda packages came from.
    """

    key: str
    status: EnvStatus
    interpreter: Path | None = None
    folder: Path | None = None
    reason: str = ""
    fix: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    provider: str = ""
    channels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Changes:
    """What building a plan would do, without doing it."""

    key: str
    install: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    python: str = ""
    download_bytes: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class BuildStep:
    """One line of a build's progress. ``share`` runs from 0 to 1, None where it is not known."""

    key: str
    text: str
    share: float | None = None


# ---------------------------------------------------------------- a worker's birth

@dataclass(frozen=True)
class ExitStatus:
    """How a process ended: ``code`` for an exit, ``signal`` for a signal; both None: the status was lost."""

    code: int | None = None
    signal: int | None = None
    note: str = ""

    def __str__(self) -> str:
        if self.signal is not None:
            try:
                name = signal.Signals(self.signal).name
            except ValueError:
                name = "unknown"
            text = f"ended by signal {self.signal} ({name})"
        elif self.code is not None:
            text = f"exited with status {self.code}"
        else:
            text = "exit status lost"
        return f"{text}; {self.note}" if self.note else text


class Endpoint(Protocol):
    """The host's half of what a worker joins to, made before the worker exists."""

    @property
    def child_fds(self) -> tuple[int, ...]: ...          # descriptors the worker must inherit under their own numbers
    @property
    def boot_fd(self) -> int: ...                        # the one the boot document is read from
    def child_started(self) -> None: ...                 # close the worker's half in the host; idempotent
    def close(self) -> None: ...                         # close everything that was not handed over; idempotent


@dataclass(frozen=True)
class Launch:
    """Everything that must exist before a worker's process does.

    ``argv`` starts with the interpreter; ``variables`` is the whole environment, already filtered; ``nonce`` marks
    every descendant (it is not a secret), ``auth_key`` is the one-time key of the handshake. ``sign`` is called with a
    stage name at each sign of life, from any thread. ``forker`` is the core's own: a backend that claims `forkable` hands it
    what it would start (`process.launch.start` does).
    """

    env: str
    generation: int
    plan: EnvPlan
    argv: tuple[str, ...]
    cwd: Path
    variables: Mapping[str, str]
    import_roots: tuple[str, ...]
    run_folder: Path
    worker_folder: Path
    nonce: str
    host_nonce: str
    endpoint: Endpoint = field(compare=False)
    auth_key: bytes = field(repr=False, compare=False)
    log_file: Path | None = None
    birth_seconds: float = 60.0
    sign: Callable[[str], None] = field(default=lambda stage: None, repr=False, compare=False)
    forker: Forker | None = field(default=None, repr=False, compare=False)

    @property
    def interpreter(self) -> str:
        return self.argv[0]

    def with_interpreter(self, interpreter: str | Path) -> Launch:
        """Return the same launch for another interpreter."""
        return replace(self, argv=(str(interpreter), *self.argv[1:]))


class Forker(Protocol):
    """What may start a launch's program by a fork, or not."""

    def fork(self, launch: Launch) -> Process | None: ...   # None: start it plainly


class Process(Protocol):
    """A started worker as a backend hands it over."""

    @property
    def pid(self) -> int | None: ...                     # None for a worker without a process on this machine
    @property
    def outputs(self) -> tuple[int, ...]: ...            # descriptors of its output, read ends
    @property
    def data(self) -> Any: ...                           # the backend's own
    def exit_handle(self) -> int | None: ...             # a descriptor that becomes readable at exit
    def exit_status(self) -> ExitStatus | None: ...      # None while it runs; never reaps


class Lane(Protocol):
    """One connection to a worker: one writer and one reader at a time; a frame is sent whole or the lane is lost.

    ``deadline`` is a time of `time.monotonic()`, None for no limit.
    """

    def send(self, frame: Any, deadline: float | None = None) -> None: ...
    def receive(self, deadline: float | None = None, also: tuple[int, ...] = ()) -> Any: ...
    def fileno(self) -> int | None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Lanes:
    """The two joined lanes of a worker and what it said of itself while joining."""

    main: Lane
    side: Lane
    hello: Mapping[str, Any] = field(default_factory=dict)

    def close(self) -> None:
        self.main.close()
        self.side.close()


@dataclass(frozen=True)
class Canary:
    """What the core asks a backend to send through the real transport: ``content`` must come back digested."""

    content: bytes
    digest: str


@dataclass(frozen=True)
class Proof:
    """Evidence a backend brings back; the core judges it.

    ``cpu`` is the digest the worker computed of the canary and ``echo`` the digest of what it sent back; None: nothing
    came. ``gpu`` likewise, None where no device takes part. ``host_device`` and ``worker_device`` are device UUIDs.
    """

    cpu: str | None
    echo: str | None = None
    gpu: str | None = None
    gpu_echo: str | None = None
    host_device: str | None = None
    worker_device: str | None = None
    versions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Want:
    """What a release asks for: ``bytes`` to free, None for everything; ``which`` names one thing the worker said it holds."""

    bytes: int | None = None
    why: str = "idle"
    which: str = ""

    def __post_init__(self) -> None:
        if self.bytes is not None and (isinstance(self.bytes, bool) or not isinstance(self.bytes, int | float)):
            raise checks.wrong(self, "bytes", self.bytes, "a number of bytes, None for everything,")
        checks.be_kind(self, str, "a text", "why", "which")


@dataclass(frozen=True)
class Released:
    """A measured receipt: bytes given back and bytes still held."""

    freed: int
    held: int


@dataclass(frozen=True)
class Killed:
    """What a kill ended. ``status`` is None where the backend cannot know it."""

    pids: tuple[int, ...] = ()
    status: ExitStatus | None = None
    note: str = ""


# ---------------------------------------------------------------- a call

@dataclass(frozen=True)
class Progress:
    """A sign of progress from a worker. ``preview`` is whatever the node attached, None mostly."""

    value: float
    total: float
    node: str = ""
    preview: Any = None


@dataclass(frozen=True)
class NodeContext:
    """Which node of which prompt a call runs."""

    node_id: str = ""
    prompt_id: str = ""
    class_type: str = ""

    def __post_init__(self) -> None:
        checks.be_kind(self, str, "a text", "node_id", "prompt_id", "class_type")


@dataclass(frozen=True)
class CallOptions:
    """How one call is run.

    ``silence`` overrides the limit of design rule 10 (seconds, 0: none), ``wait`` limits the time until the call begins
    (raises CallWithdrawn), ``on_progress`` runs on the asking thread, ``callbacks`` are functions the worker may call
    by name while it runs.
    """

    silence: float | None = None
    wait: float | None = None
    on_progress: Callable[[Progress], None] | None = None
    node: NodeContext | None = None
    callbacks: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("silence", "wait"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
                raise PlanError(f"CallOptions({name}={value!r}): seconds, 0 or more, are wanted")
        if self.on_progress is not None and not callable(self.on_progress):
            raise PlanError(f"CallOptions(on_progress={self.on_progress!r}): a function that takes a Progress is wanted")
        if self.node is not None and not isinstance(self.node, NodeContext):
            raise PlanError(f"CallOptions(node={self.node!r}): a NodeContext(node_id, prompt_id, class_type) is wanted")
        _check_callbacks(self.callbacks)


def _check_callbacks(given: Any) -> None:
    if type(given) is not dict and not isinstance(given, Mapping):
        raise PlanError(f"CallOptions(callbacks={given!r}): functions by the name the worker calls them by are wanted")
    for name, function in given.items():
        if not isinstance(name, str) or not callable(function):
            raise PlanError(f"CallOptions(callbacks={{{name!r}: {function!r}}}): a name with a function is wanted")


class RemoteRef:
    """An object that stayed in the worker that made it; passing it back to that worker yields the same object."""

    __slots__ = ("env", "generation", "id", "type_name", "__weakref__")

    def __init__(self, env: str, generation: int, id: int, type_name: str) -> None:
        self.env = env
        self.generation = generation
        self.id = id
        self.type_name = type_name

    def _comfy_cache_tensors(self) -> tuple[()]:
        """ComfyUI's cache asks what memory of this process a value holds: none."""
        return ()

    def __repr__(self) -> str:
        return f"<RemoteRef {self.type_name} of env {self.env}, generation {self.generation}, id {self.id}>"


# ---------------------------------------------------------------- the service

@dataclass(frozen=True)
class AgentSpec:
    """An agent the service offers: `target` ("module:function") is called in `plan`'s environment with a message.

    Its events are the call's progress. ``shares_gpu``: its messages are held while ComfyUI renders. ``replay_safe``: a
    turn that was running when the service died may be run again.
    """

    name: str
    plan: EnvPlan
    target: str
    shares_gpu: bool = False
    replay_safe: bool = False
    about: str = ""

    def __post_init__(self) -> None:
        checks.be_kind(self, str, "a text", "name", "about")
        checks.be_kind(self, EnvPlan, "an EnvPlan", "plan")
        checks.be_kind(self, bool, "True or False", "shares_gpu", "replay_safe")
        if not isinstance(self.target, str) or ":" not in self.target:
            raise checks.wrong(self, "target", self.target, "the text 'module:function'")


@dataclass(frozen=True)
class Idle:
    """Nothing speaks against a restart."""


@dataclass(frozen=True)
class Busy:
    """A restart would cost somebody something. ``since`` is a time of `time.monotonic()`, None: since it is told."""

    reason: str
    since: float | None = None


@dataclass(frozen=True)
class Unknown:
    """It cannot be told; counts as busy. ``since`` as in `Busy`."""

    reason: str
    since: float | None = None


Verdict = Idle | Busy | Unknown

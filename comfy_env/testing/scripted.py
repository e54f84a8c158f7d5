"""A backend whose worker is a script in this process: no process, no thread, every verb can be held up or made to fail.

Its lanes speak the real frames, so a whole pool can be driven over it in milliseconds, through endings a real worker
only comes to by accident.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from comfy_env.errors import LaneLost
from comfy_env.hooks import hookimpl
from comfy_env.transport import commands
from comfy_env.values import Canary, ExitStatus, Killed, Lanes, Launch, Proof, Released, Want
from comfy_env.worker.codec import GuestSide
from comfy_env.worker.raised import describe
from comfy_env.worker.resident import Resident
from comfy_env.worker.wire import proof
from comfy_env.worker.wire.frames import Frame
from comfy_env.worker.wire.kinds import Kind
from comfy_env.worker.wire.payload import Codec

LIMIT = 30.0
"""Seconds a gate is waited for at most."""


class Dies(BaseException):
    """Raised by a scripted function: the worker ends in the middle of its call."""

    def __init__(self, status: ExitStatus) -> None:
        super().__init__(str(status))
        self.status = status


HOLD = object()
"""Returned by a scripted function: its call stays open until a test ends it (`ScriptedBackend.open_calls`)."""


class ScriptedProcess:
    """Satisfies `values.Process`; `end` is its death."""

    pid = None
    outputs: tuple[int, ...] = ()
    data: Any = None

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.lanes: list[ScriptedLane] = []
        self._status: ExitStatus | None = None
        self._lock = threading.Lock()
        self._read, self._write = os.pipe()

    def exit_handle(self) -> int:
        return self._read

    def exit_status(self) -> ExitStatus | None:
        return self._status

    def end(self, status: ExitStatus) -> ExitStatus:
        """Die once, with a status; return the status it died with."""
        with self._lock:
            if self._status is None:
                self._status = status
                os.close(self._write)
        for lane in self.lanes:
            lane.close()
        return self._status

    def close(self) -> None:
        """Close the exit handle; a worker that still lives ends."""
        self.end(ExitStatus(note="its handle was closed"))
        with self._lock:
            fd, self._read = self._read, -1
        if fd >= 0:
            os.close(fd)


class ScriptedLane:
    """Satisfies `values.Lane` without a descriptor: what is sent is answered at once, by a function."""

    def __init__(self, answer: Callable[[Frame], list[Frame]]) -> None:
        self.sent: list[Frame] = []
        self._answer = answer
        self._news = threading.Condition()
        self._frames: deque[Frame] = deque()
        self._lost = False

    def send(self, frame: Frame, deadline: float | None = None) -> None:
        if self._lost:
            raise LaneLost("the scripted worker is gone")
        self.sent.append(frame)
        self.put(*self._answer(frame))

    def put(self, *frames: Frame) -> None:
        """Have frames come from the worker, also some nobody asked for."""
        with self._news:
            self._frames.extend(frames)
            self._news.notify_all()

    def receive(self, deadline: float | None = None, also: tuple[int, ...] = ()) -> Frame:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        with self._news:
            if not self._news.wait_for(lambda: self._frames or self._lost, left):
                raise TimeoutError("nothing came from the scripted worker before the deadline")
            if self._frames:
                return self._frames.popleft()
            raise LaneLost("the scripted worker is gone")

    def fileno(self) -> None:
        return None

    def close(self) -> None:
        with self._news:
            self._lost = True
            self._news.notify_all()


class OpenCall:
    """A call that stays until one of these ends it."""

    def __init__(self, lane: ScriptedLane, frame: Frame, make: Callable[[Kind, Frame, Any], Frame]) -> None:
        self.request = frame.request
        self._lane = lane
        self._frame = frame
        self._make = make

    def tell(self, kind: Kind, message: Mapping[str, Any]) -> None:
        """Have any frame come for this call, also one that is late."""
        self._lane.put(self._make(kind, self._frame, message))

    def report(self, value: float, total: float) -> None:
        self.tell(Kind.PROGRESS, {"value": value, "total": total, "node": "", "preview": None})

    def reply(self, value: Any = None, held: int = 0) -> None:
        self.tell(Kind.REPLY, {"value": value, "held": held})


class ScriptedBackend:
    """``functions`` maps targets to what a call of them runs, on the caller's thread; one may raise `Dies` or return `HOLD`.

    ``faults`` maps a verb to an exception it raises or a value it returns instead, ``gates`` a verb to an event it
    waits for. ``told`` lists the verbs in the order they were called, ``processes`` every worker there was,
    ``open_calls`` what stays. An interrupt ends an open call unless ``deaf``; a ``mute`` side lane answers nothing.
    """

    capabilities = frozenset({"survives_crash", "killable"})

    def __init__(self, functions: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self.functions = dict(functions or {})
        self.faults: dict[str, Any] = {}
        self.gates: dict[str, threading.Event] = {}
        self.told: list[str] = []
        self.processes: list[ScriptedProcess] = []
        self.open_calls: list[OpenCall] = []
        self.deaf = False
        self.mute = False
        self.held = 0
        self._codec = Codec(GuestSide(Resident(), None))

    @property
    def process(self) -> ScriptedProcess:
        """The newest worker."""
        return self.processes[-1]

    def _verb(self, verb: str, do: Callable[[], Any]) -> Any:
        self.told.append(verb)
        if verb in self.gates and not self.gates[verb].wait(LIMIT):
            raise TimeoutError(f"nobody opened the gate of {verb}")
        if verb not in self.faults:
            return do()
        fault = self.faults[verb]
        if isinstance(fault, BaseException):
            raise fault
        return fault

    @hookimpl
    def comfy_env_spawn(self, launch: Launch) -> Any:
        return self._verb("spawn", lambda: self._start(launch))

    @hookimpl
    def comfy_env_transport(self, process: ScriptedProcess, launch: Launch) -> Any:
        return self._verb("transport", lambda: self._join(process, launch))

    @hookimpl
    def comfy_env_verify(self, process: ScriptedProcess, lanes: Lanes, canary: Canary) -> Proof:
        return self._verb("verify", lambda: commands.verify(process, lanes, canary))

    @hookimpl
    def comfy_env_release(self, process: ScriptedProcess, lanes: Lanes, want: Want) -> Released:
        return self._verb("release", lambda: commands.release(process, lanes, want))

    @hookimpl
    def comfy_env_kill(self, process: ScriptedProcess, reason: str, replaced: bool) -> Killed:
        return self._verb("kill", lambda: Killed(status=process.end(ExitStatus(signal=9))))

    # ---- the worker

    def _start(self, launch: Launch) -> ScriptedProcess:
        launch.endpoint.child_started()
        process = ScriptedProcess(launch)
        self.held = 0
        self.processes.append(process)
        return process

    def _join(self, process: ScriptedProcess, launch: Launch) -> Lanes:
        main, side = ScriptedLane(lambda frame: self._main(process, frame)), ScriptedLane(self._side)
        process.lanes = [main, side]
        for stage in ("started", "authenticated", "ready"):
            launch.sign(stage)
        told = {"env": launch.env, "generation": launch.generation, "nonce": launch.nonce, "host_nonce": launch.host_nonce}
        return Lanes(main, side, hello=json.loads(proof.hello(**told)))

    def _main(self, process: ScriptedProcess, frame: Frame) -> list[Frame]:
        answers: dict[int, Callable[[Any], tuple[Kind, Any]]] = {
            Kind.CALL: lambda message: self._call(process, frame, message),
            Kind.PING: lambda message: (Kind.PONG, {"held": self.held}),
            Kind.CANARY: _canary,
            Kind.RELEASE: self._release,
        }
        if frame.kind == Kind.GOODBYE:
            process.end(ExitStatus(code=0))
        if frame.kind not in answers:
            return []
        try:
            kind, message = answers[frame.kind](self._read(frame))
        except Dies as death:
            process.end(death.status)
            return []
        return [] if message is HOLD else [self._frame(kind, frame, message)]

    def _side(self, frame: Frame) -> list[Frame]:
        if frame.kind == Kind.INTERRUPT and not self.deaf:
            self._interrupt(self._read(frame)["request"])
        if frame.kind == Kind.INTERRUPT or self.mute:
            return []
        return [self._frame(Kind.SIDE_PONG if frame.kind == Kind.SIDE_PING else Kind.SIDE_REPLY, frame, {"absent": True})]

    def _interrupt(self, request: int) -> None:
        for call in [call for call in self.open_calls if call.request == request]:
            self.open_calls.remove(call)
            call.tell(Kind.INTERRUPTED, {"held": self.held})

    def _read(self, frame: Frame) -> Any:
        return self._codec.decode(frame.payload, frame.buffers) if len(frame.payload) else {}

    def _frame(self, kind: Kind, asked: Frame, message: Any) -> Frame:
        payload, buffers = self._codec.encode(message, message=True)
        return asked._replace(kind=kind, payload=payload, buffers=buffers)

    def _call(self, process: ScriptedProcess, frame: Frame, message: Mapping[str, Any]) -> tuple[Kind, Any]:
        try:
            value = self.functions[message["target"]](*message["args"], **message["kwargs"])
            if value is HOLD:
                self.open_calls.append(OpenCall(process.lanes[0], frame, self._frame))
            return Kind.REPLY, value if value is HOLD else {"value": value, "held": self.held}
        except Exception as error:  # whatever a scripted function raises is told as a worker tells it
            return Kind.RAISED, {**describe(error), "held": self.held}

    def _release(self, message: Mapping[str, Any]) -> tuple[Kind, Any]:
        freed, self.held = self.held, 0
        return Kind.RECEIPT, {"freed": freed, "held": 0}


def _canary(message: Mapping[str, Any]) -> tuple[Kind, Any]:
    content = bytes(message["content"])
    return Kind.CANARY_BACK, {"digest": hashlib.sha256(content).hexdigest(), "content": content, "versions": {}}

"""The conversation on a worker's lanes: one call, and commands from any thread beside it.

While a call's thread runs one of the worker's callbacks, the worker waits for the answer and serves commands: another
thread, or the callback itself, can give it one.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from comfy_env.errors import ComfyEnvError, DecodeRefused, EncodeRefused, FrameDamaged, LaneBusy, LaneLost
from comfy_env.transport.answers import Answer
from comfy_env.transport.arena import open_arena, traffic
from comfy_env.transport.channel import SocketLane
from comfy_env.transport.codec import HostCodec
from comfy_env.transport.following import ENDS, Following
from comfy_env.transport.mailbox import Mailbox, seconds_until
from comfy_env.transport.relays import relays
from comfy_env.values import Lanes, NodeContext, Process, Progress
from comfy_env.worker.wire import proof
from comfy_env.worker.wire.faults import NoRoom
from comfy_env.worker.wire.frames import Frame
from comfy_env.worker.wire.kinds import Kind
from comfy_env.worker.wire.sharing import Sharing

_OWN = 1 << 62        # requests of commands are numbered from here, so that they never meet a ticket's
_SHORT = 1.0          # s that a frame without an answer may take to leave


class Session:
    """One worker's conversation. ``late`` counts frames that answered nobody any more, ``held`` is the last held told."""

    def __init__(self, lanes: Lanes, codec: HostCodec, process: Process) -> None:
        self.codec = codec
        self._late_aside = 0
        self.held: int | None = None
        self._lanes = lanes
        self._main = lanes.main
        self._process = process
        handle = process.exit_handle()
        self._also = () if handle is None else (handle,)
        self._numbers = itertools.count(_OWN)
        self._mail = Mailbox(lanes.main, self._also, codec.generation, self._lost_error)
        self._turn_lock = threading.RLock()  # guards who may write what: running, in_callback; whoever writes may find the lane lost
        self._turn = threading.Condition(self._turn_lock)
        self._waiting = 0
        self._running: int | None = None
        self._in_callback = False
        self._side_lock = threading.Lock()
        self._arena = _open_arena(lanes)

    @property
    def tensors(self) -> int:
        """How many values of this worker's memory are looked at in the host; also those that other workers look at."""
        return 0 if self._arena is None else self._arena.inbox.live

    @property
    def traffic(self) -> dict[str, int]:
        """What went through the arena: see `arena.traffic`."""
        return traffic(self._arena)

    def trim(self) -> None:
        """Give memory of the arena that the worker does not look at back to the system."""
        trim = getattr(self._main, "trim", None)
        if trim is not None:
            trim()

    @property
    def late(self) -> int:
        return self._mail.late + self._late_aside

    # ---- calls

    def call(
        self,
        message: Mapping[str, Any],
        *,
        request: int,
        generation: int,
        alive: Callable[[], None] = lambda: None,
        on_progress: Callable[[Progress], None] | None = None,
        callbacks: Mapping[str, Callable[..., Any]] | None = None,
        deadline: float | None = None,
    ) -> Answer:
        """Run one call on this thread until it ends and return how.

        ``message`` is that of a CALL frame; its target may be "module:function" or a callable. ``alive`` runs at every
        sign of life. Raises EncodeRefused and ReferenceLost before a byte is sent, LaneLost as soon as the worker is
        gone. What ``on_progress`` raises interrupts the call and is raised once that has ended.
        """
        payload, buffers = self.codec.encode(_with_plain_node(message), message=True)
        self._begin(request)
        try:
            self._send(Frame(Kind.CALL, request, generation, payload, buffers), deadline)
            del payload, buffers   # nothing of the arguments is kept while the call runs
            frame = self._mail.next(request, deadline)
            if frame.kind not in ENDS:
                frame = Following(self, request, alive, on_progress, callbacks or {}).run(frame, deadline)
        finally:
            self._end(request)
        answer = Answer.read(frame.kind, self.codec.decode(frame.payload, frame.buffers))
        self._note_held(answer.held)
        return answer

    def next_frame(self, request: int, deadline: float | None) -> Frame:
        """Return the next frame of a request that runs."""
        return self._mail.next(request, deadline)

    def _begin(self, request: int) -> None:
        with self._turn_lock:
            if self._running is not None:
                raise LaneBusy("another call runs in this worker", **self._facts())
            self._running = request
            self._mail.open(request)

    def _end(self, request: int) -> None:
        with self._turn_lock:
            self._mail.close(request)
            self._running = None
            if self._waiting:
                self._turn.notify_all()

    # ---- commands

    def command(self, kind: Kind, message: Mapping[str, Any], deadline: float | None = None) -> Any:
        """Ask something on the main lane and return the answer's message.

        Waits while a call computes, goes ahead while it waits for a callback: LaneBusy if the deadline comes before
        that, TimeoutError if it comes before the answer, LaneLost when the worker is gone.
        """
        payload, buffers = self.codec.encode(message, message=True)
        request = next(self._numbers)
        self._mail.open(request)
        try:
            with self._turn_lock:
                self._await_turn(deadline)
                self._send(Frame(kind, request, self.codec.generation, payload, buffers), deadline)
            frame = self._mail.next(request, deadline)
        finally:
            self._mail.close(request)
        answer = self.codec.decode(frame.payload, frame.buffers)
        if frame.kind == Kind.REFUSED:
            raise DecodeRefused(f"the worker refused a {kind.name}: {answer.get('text', '')}", **self._facts())
        self._note_held(answer.get("held"))
        return answer

    def _await_turn(self, deadline: float | None) -> None:
        while self._running is not None and not self._in_callback and self._mail.lost is None:
            self._waiting += 1
            try:
                told = self._turn.wait(seconds_until(deadline))
            finally:
                self._waiting -= 1
            if not told:
                raise LaneBusy("a call runs in this worker and did not end before the command's limit", **self._facts())

    def begin_callback(self) -> None:
        """Let commands go ahead from now on: the worker waits for an answer and serves them."""
        with self._turn_lock:
            self._in_callback = True
            self._turn.notify_all()

    def end_callback(self, answer: Frame) -> None:
        """Send a callback's answer; every command that went ahead is on the lane before it."""
        with self._turn_lock:
            self._in_callback = False
            self._send(answer, None)

    # ---- the side lane

    def side(self, kind: Kind, message: Mapping[str, Any], deadline: float | None = None) -> Any:
        """Ask something on the side lane and return the answer's message; TimeoutError at the deadline."""
        payload, buffers = self.codec.encode(message, message=True)
        request = next(self._numbers)
        seconds = seconds_until(deadline)
        if not self._side_lock.acquire(timeout=-1 if seconds is None else seconds):
            raise TimeoutError("another question on the side lane was not answered in time")
        try:
            self._lanes.side.send(Frame(kind, request, self.codec.generation, payload, buffers), deadline)
            while True:
                frame = self._lanes.side.receive(deadline, self._also)
                if frame.request == request:
                    return self.codec.decode(frame.payload, frame.buffers)
                self._late_aside += 1
        finally:
            self._side_lock.release()

    def interrupt(self, request: int) -> None:
        """Put up the interrupt flag of a call; nothing happens to one that has ended."""
        payload, _ = self.codec.encode({"request": request})
        self._lanes.side.send(Frame(Kind.INTERRUPT, request, self.codec.generation, payload), time.monotonic() + _SHORT)

    # ---- the end

    def goodbye(self) -> None:
        """Ask the worker to end by itself after what it does now; does not wait for it."""
        with contextlib.suppress(LaneLost, TimeoutError):   # it is gone already, or takes nothing: the kill comes anyway
            self._main.send(Frame(Kind.GOODBYE, generation=self.codec.generation), time.monotonic() + _SHORT)

    def close(self) -> None:
        """Close both lanes; threads that wait on them get LaneLost, also one that is stuck writing."""
        self._mail.lose(LaneLost("the lanes were closed"))
        self._lanes.close()   # before the turn is asked for: whoever has it may be writing to a worker that reads no more
        with self._turn_lock:
            self._turn.notify_all()

    def _lose(self, error: Exception) -> None:
        self._mail.lose(error)
        with self._turn_lock:
            self._turn.notify_all()

    def _lost_error(self, error: Exception) -> ComfyEnvError:
        """Return a fresh error for each thread that hears of the lane's end."""
        cls = FrameDamaged if isinstance(error, FrameDamaged) else LaneLost
        status = self._process.exit_status()
        return cls(str(error), **self._facts(), status="" if status is None else str(status))

    def _facts(self) -> dict[str, Any]:
        return {"env": self.codec.env, "generation": self.codec.generation, "pid": self._process.pid}

    # ---- writing

    def _send(self, frame: Frame, deadline: float | None) -> None:
        """Send a frame, and before it what the host let go of."""
        if self._mail.lost is not None:
            raise self._lost_error(self._mail.lost)
        drops = self.codec.take_drops()
        try:
            if drops:
                payload, _ = self.codec.encode({"ids": drops})
                self._main.send(Frame(Kind.DROP, 0, self.codec.generation, payload), deadline)
            self._main.send(frame, deadline)
        except LaneLost as lost:
            self._lose(lost)
            raise self._lost_error(lost) from lost
        except NoRoom as fault:
            raise EncodeRefused(fault.why, **self._facts(), hint=fault.hint) from fault

    def _note_held(self, held: Any) -> None:
        if type(held) is int:
            self.held = held


def _open_arena(lanes: Lanes) -> Sharing | None:
    """Give a lane its arena, if it is one that can have it and the worker at its other end has one too."""
    main = lanes.main
    if not isinstance(main, SocketLane) or main.sock.family != socket.AF_UNIX or proof.ARENA not in lanes.hello.get("features", ()):
        return None
    main.sharing = open_arena(str(lanes.hello.get("host_nonce", "")))
    return main.sharing


def session_of(lanes: Lanes, process: Process) -> Session:
    """Return the session of these lanes, begun by whoever asks first."""
    with _BEGINNING:
        session = getattr(lanes.main, "session", None)
        if session is None:
            codec = HostCodec(str(lanes.hello.get("env", "")), int(lanes.hello.get("generation", 0)), lanes.hello)
            session = Session(lanes, codec, process)
            relays.know(codec.env, codec.generation, session)
            lanes.main.session = session  # type: ignore[attr-defined]
        return session


_BEGINNING = threading.Lock()


def _with_plain_node(message: Mapping[str, Any]) -> Mapping[str, Any]:
    node = message.get("node")
    return {**message, "node": asdict(node)} if isinstance(node, NodeContext) else message

"""The conversation on a worker's lanes: one call, and commands from any thread beside it.

While a call's thread runs one of the worker's callbacks, the worker waits for the answer and serves commands: another
thread, or the callback itself, can give it one.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from comfy_env.errors import ComfyEnvError, DecodeRefused, EncodeRefused, FrameDamaged, LaneBusy, LaneLost
from comfy_env.transport.answers import Answer
from comfy_env.transport.arena import open_arena, traffic
from comfy_env.transport.channel import SocketLane
from comfy_env.transport.codec import HostCodec
from comfy_env.transport.devices import HostDevices
from comfy_env.transport.following import ENDS, Following
from comfy_env.transport.limits import Limit, by_clock, is_over, receive, send, wait_now
from comfy_env.transport.mailbox import Mailbox
from comfy_env.transport.relays import relays
from comfy_env.values import Lanes, NodeContext, Process, Progress
from comfy_env.worker.wire import proof
from comfy_env.worker.wire.devices import ASK
from comfy_env.worker.wire.faults import NoRoom
from comfy_env.worker.wire.frames import Frame
from comfy_env.worker.wire.kinds import Kind
from comfy_env.worker.wire.sharing import Sharing

log = logging.getLogger(__name__)
_OWN = 1 << 62        # requests of commands are numbered from here, so that they never meet a ticket's
_SHORT = 1.0          # s that a frame without an answer may take to leave


class Session:
    """One worker's conversation. ``late`` counts frames that answered nobody any more, ``held`` is the last held told.

    ``patience`` makes a limit of seconds; the pool, which can tell lived time, gives it its own.
    """

    def __init__(self, lanes: Lanes, codec: HostCodec, process: Process) -> None:
        self.codec = codec
        self.patience: Callable[[float], Limit] = by_clock
        self._late_aside = 0
        self.held: int | None = None
        self._lanes = lanes
        self._main = lanes.main
        self._process = process
        self._also = _exit_of(process)
        self._numbers = itertools.count(_OWN)
        self._mail = Mailbox(lanes.main, self._also, codec.generation, self._lost_error)
        self._turn_lock = threading.RLock()  # guards who may write what: running, in_callback; whoever writes may find the lane lost
        self._turn = threading.Condition(self._turn_lock)
        self._waiting = 0
        self._running: int | None = None
        self._in_callback = False
        self._side_lock = threading.Lock()
        self._moved: Callable[[], None] | None = None
        self._can_tell = hasattr(lanes.main, "attend")
        self._arena = _open_arena(lanes)
        self.devices = HostDevices(self.ask, lanes.hello)
        if self._arena is not None:
            codec.share(self.devices)

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

    def prove(self, uuid: str) -> None:
        """Try whether memory of a device can be shared with the worker, and tell it; see `HostDevices.prove`."""
        self.devices.prove(str(uuid))

    def look_away(self) -> None:
        """Close device memory of the worker's that is open for what comes next, so that it can give that back."""
        self.devices.trim()

    def heed(self, crashes: Any) -> None:
        """Let a crash end every wait on the main lane as soon as it is told, where the lane can; see `SocketLane.heed`."""
        heed = getattr(self._main, "heed", None)
        if heed is not None:
            heed(crashes)

    # ---- calls

    def call(
        self,
        message: Mapping[str, Any],
        *,
        request: int,
        generation: int,
        alive: Callable[[], None] = lambda: None,
        moved: Callable[[], None] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        callbacks: Mapping[str, Callable[..., Any]] | None = None,
        deadline: float | None = None,
    ) -> Answer:
        """Run one call on this thread until it ends and return how.

        ``message`` is that of a CALL frame; its target may be "module:function" or a callable. ``alive`` runs at every
        sign of life, ``moved`` while its arguments leave and a large result comes. Raises EncodeRefused and ReferenceLost
        before a byte is sent, LaneLost as soon as the worker is gone. What ``on_progress`` raises interrupts the call and is
        raised once that has ended.
        """
        payload, buffers = self.codec.encode(_with_plain_node(message), message=True, prove=self.prove)
        self._begin(request)
        try:
            self._attend(moved)
            self._send(Frame(Kind.CALL, request, generation, payload, buffers), deadline)
            if moved is not None:
                moved()
            del payload, buffers   # nothing of the arguments is kept while the call runs
            frame = self._mail.next(request, deadline)
            if frame.kind not in ENDS:
                frame = Following(self, request, alive, on_progress, {**(callbacks or {}), ASK: self.prove}).run(frame, deadline)
        finally:
            self._attend(None)
            self._end(request)
        answer = Answer.read(frame.kind, self.codec.decode(frame.payload, frame.buffers))
        self._note_held(answer.held)
        return answer

    def _attend(self, moved: Callable[[], None] | None) -> None:
        self._moved = moved
        self._watch(moved)

    def _watch(self, moved: Callable[[], None] | None) -> None:
        if self._can_tell:
            self._main.attend(moved)  # type: ignore[attr-defined]

    def next_frame(self, request: int, deadline: Limit) -> Frame:
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

    def command(self, kind: Kind, message: Mapping[str, Any], limit: Limit = None) -> Any:
        """Ask something on the main lane and return the answer's message.

        Waits while a call computes, goes ahead while it waits for a callback: LaneBusy if the limit comes before
        that, TimeoutError if it comes before the answer, LaneLost when the worker is gone.
        """
        payload, buffers = self.codec.encode(message, message=True, prove=self.prove if kind == Kind.DEVICE else None)
        request = next(self._numbers)
        self._mail.open(request)
        try:
            with self._turn_lock:
                self._await_turn(limit)
                self._send(Frame(kind, request, self.codec.generation, payload, buffers), limit)
            frame = self._mail.next(request, limit)
        finally:
            self._mail.close(request)
        answer = self.codec.decode(frame.payload, frame.buffers)
        if frame.kind == Kind.REFUSED:
            raise DecodeRefused(f"the worker refused a {kind.name}: {answer.get('text', '')}", **self._facts())
        self._note_held(answer.get("held"))
        return answer

    def ask(self, kind: Kind, message: Mapping[str, Any], seconds: float) -> Any:
        """Ask as `command` does, with so many seconds of this session's patience."""
        return self.command(kind, message, self.patience(seconds))

    def _await_turn(self, limit: Limit) -> None:
        while self._running is not None and not self._in_callback and self._mail.lost is None:
            self._waiting += 1
            try:
                told = self._turn.wait(wait_now(limit))
            finally:
                self._waiting -= 1
            if not told and is_over(limit):
                raise LaneBusy("a call runs in this worker and did not end before the command's limit", **self._facts())

    def begin_callback(self) -> None:
        """Let commands go ahead from now on: the worker waits for an answer and serves them."""
        with self._turn_lock:
            self._watch(None)   # what goes and comes now is of commands, and the worker's silence is not counted
            self._in_callback = True
            self._turn.notify_all()

    def end_callback(self, answer: Frame) -> None:
        """Send a callback's answer; every command that went ahead is on the lane before it."""
        with self._turn_lock:
            self._watch(self._moved)
            self._in_callback = False
            self._send(answer, None)

    # ---- the side lane

    def side(self, kind: Kind, message: Mapping[str, Any], limit: Limit = None) -> Any:
        """Ask something on the side lane and return the answer's message; TimeoutError at the limit."""
        payload, buffers = self.codec.encode(message, message=True)
        request = next(self._numbers)
        self._await_side(limit)
        try:
            send(self._lanes.side, Frame(kind, request, self.codec.generation, payload, buffers), limit)
            while True:
                frame = receive(self._lanes.side, limit, self._also)
                if frame.request == request:
                    return self.codec.decode(frame.payload, frame.buffers)
                self._late_aside += 1
        finally:
            self._side_lock.release()

    def _await_side(self, limit: Limit) -> None:
        """Take the side lane, which has one question at a time."""
        while not self._side_lock.acquire(timeout=-1 if (wait := wait_now(limit)) is None else wait):
            if is_over(limit):
                raise TimeoutError("another question on the side lane was not answered in time")

    def interrupt(self, request: int) -> None:
        """Put up the interrupt flag of a call; nothing happens to one that has ended."""
        payload, _ = self.codec.encode({"request": request})
        send(self._lanes.side, Frame(Kind.INTERRUPT, request, self.codec.generation, payload), self.patience(_SHORT))

    # ---- the end

    def goodbye(self) -> None:
        """Ask the worker to end by itself after what it does now; does not wait for it."""
        with contextlib.suppress(LaneLost, TimeoutError):   # it is gone already, or takes nothing: the kill comes anyway
            send(self._main, Frame(Kind.GOODBYE, generation=self.codec.generation), self.patience(_SHORT))

    def close(self) -> None:
        """Close both lanes; threads that wait on them get LaneLost, also one that is stuck writing."""
        self._mail.lose(LaneLost("the lanes were closed"))
        self.devices.close()
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
        return cls(str(error), **self._facts(), status=_status_of(self._process))

    def _facts(self) -> dict[str, Any]:
        return {"env": self.codec.env, "generation": self.codec.generation, "pid": self._process.pid}

    # ---- writing

    def _send(self, frame: Frame, limit: Limit) -> None:
        """Send a frame, and before it what the host let go of."""
        if self._mail.lost is not None:
            raise self._lost_error(self._mail.lost)
        drops = self.codec.take_drops()
        try:
            if drops:
                payload, _ = self.codec.encode({"ids": drops})
                send(self._main, Frame(Kind.DROP, 0, self.codec.generation, payload), limit)
            send(self._main, frame, limit)
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


def _exit_of(process: Process) -> tuple[int, ...]:
    """Return the descriptor that tells of a process's end, none where its backend has no sound one."""
    try:
        handle = process.exit_handle()
    except Exception as error:  # a backend's own code; the lane itself tells of the end, then
        log.warning("exit_handle raised %s: %s", type(error).__name__, error)
        return ()
    return (handle,) if type(handle) is int and handle >= 0 else ()


def _status_of(process: Process) -> str:
    """Return how a process ended in words, '' where its backend does not say."""
    try:
        status = process.exit_status()
    except Exception as error:  # a backend's own code; the lane's end is told all the same
        return f"exit_status raised {type(error).__name__}: {error}"
    return "" if status is None else str(status)


def _with_plain_node(message: Mapping[str, Any]) -> Mapping[str, Any]:
    node = message.get("node")
    return {**message, "node": asdict(node)} if isinstance(node, NodeContext) else message

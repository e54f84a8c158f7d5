"""Joining: the worker's two lanes are found among whatever connects, both ends prove who they are.

A connection that says nothing, or the wrong thing, is a stranger: it is dropped and joining goes on. Where the lanes
are inherited nobody else can come, so there a wrong word means that the worker is not who it must be.
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Generator
from typing import Any

from comfy_env.errors import DiedBeforeJoining, FrameDamaged, LaneLost, TransportRefused
from comfy_env.transport.channel import SocketLane
from comfy_env.values import Lanes, Launch, Process
from comfy_env.worker.wire import proof
from comfy_env.worker.wire.faults import DecodeFault
from comfy_env.worker.wire.frames import PAYLOAD_LIMIT, Frame
from comfy_env.worker.wire.kinds import Kind

_LOOK = 100        # ms between looks at a process without an exit handle, and at an endpoint that may be closed
_GLANCE = 20       # ms between looks at a process that is about to say how it ended
_LAST_WORDS = 100  # glances for the exit of a process whose lanes ended
_STRANGERS = 32    # connections listened to at once


class _Stranger(Exception):
    """The other end of a connection is not the worker; the text says why."""


class _Candidate:
    """A connection that may turn out to be one of the worker's lanes."""

    def __init__(self, sock: socket.socket, launch: Launch, trusted: bool) -> None:
        self.lane = SocketLane(sock, proof.PAYLOAD_LIMIT)
        self.hello: dict[str, Any] = {}
        self.number = -1
        self._ready = False
        self._launch = launch
        self._trusted = trusted   # whether a sign of life counts before the proof
        self._talk = self._conversation()
        next(self._talk)

    @property
    def joined(self) -> bool:
        """Tell whether this lane is proved, and on the main lane also whether the worker serves it."""
        return bool(self.hello) and (self._ready or self.number == proof.SIDE)

    def listen(self) -> None:
        """Take what came; raises _Stranger, LaneLost, FrameDamaged, DecodeFault, TransportRefused."""
        while not self.joined:
            frame = self.lane.receive_now()
            if frame is None:
                return
            if frame.kind == Kind.STAGE:
                self._sign(str(proof.read_json(frame.payload).get("stage", ""))[:200])
            else:
                self._talk.send(frame)

    def _sign(self, stage: str) -> None:
        if self._trusted or self.number >= 0:
            self._launch.sign(stage)
        self._ready = bool(self.hello) and stage == "ready"

    def _conversation(self) -> Generator[None, Frame, None]:
        launch = self._launch
        asked = proof.challenge()
        self.lane.send(Frame(Kind.CHALLENGE, payload=asked))
        theirs = _payload((yield), Kind.CHALLENGE)
        response = _payload((yield), Kind.RESPONSE)
        if not proof.proves(response, launch.auth_key, proof.WORKER, launch.nonce, launch.generation, asked):
            raise _Stranger("it does not have this worker's key")
        self.number = response[0]
        answer = proof.answer(launch.auth_key, proof.HOST, self.number, launch.nonce, launch.generation, theirs)
        self.lane.send(Frame(Kind.RESPONSE, payload=answer))
        features = [proof.ARENA, proof.DEVICES] if self.lane.sock.family == socket.AF_UNIX else []
        self.lane.send(Frame(Kind.HELLO, payload=proof.hello(generation=launch.generation, nonce=launch.host_nonce, features=features)))
        told = proof.read_json(_payload((yield), Kind.HELLO))
        _check_hello(told, launch)
        self.lane.payload_limit = PAYLOAD_LIMIT
        self.hello = told
        while True:
            frame = yield
            raise _Stranger(f"it sent frame kind {frame.kind} before it was ready")


def _payload(frame: Frame, kind: Kind) -> bytes:
    if frame.kind != kind:
        raise _Stranger(f"it sent frame kind {frame.kind} where {kind.name} was due")
    return bytes(frame.payload)


def _check_hello(told: dict[str, Any], launch: Launch) -> None:
    due = {"protocol": proof.PROTOCOL, "nonce": launch.nonce, "env": launch.env, "generation": launch.generation}
    for name, value in due.items():
        if told.get(name) != value:
            raise TransportRefused(f"the worker says its {name} is {told.get(name)!r}; it must be {value!r}",
                                   env=launch.env, generation=launch.generation, pid=None)


_WRONG = (_Stranger, LaneLost, FrameDamaged, DecodeFault)


class _Reception:
    """One joining: listens to every connection and to the process at once."""

    def __init__(self, endpoint: Any, process: Process, launch: Launch) -> None:
        self._endpoint = endpoint
        self._process = process
        self._launch = launch
        self._candidates: list[_Candidate] = []
        self._lanes: dict[int, _Candidate] = {}

    def run(self) -> Lanes:
        try:
            while len(self._lanes) < 2:
                self._take_arrivals()
                self._wait()
                self._hear()
                self._check()
        except BaseException as error:
            self._drop_all()
            if self._endpoint.closed and isinstance(error, (OSError, ValueError)):   # ValueError: a descriptor that is closed already
                raise self._refused("the endpoint was closed while the worker joined") from error
            raise
        self._endpoint.take_lanes()
        for candidate in self._candidates:
            candidate.lane.close()
        return self._result()

    def _result(self) -> Lanes:
        main, side = self._lanes[proof.MAIN], self._lanes[proof.SIDE]
        exit_handle = self._process.exit_handle()
        if exit_handle is not None:
            main.lane.watch(exit_handle)
            side.lane.watch(exit_handle)
        return Lanes(main.lane, side.lane, main.hello)

    def _take_arrivals(self) -> None:
        for sock in self._endpoint.arrivals():
            try:
                candidate = _Candidate(sock, self._launch, trusted=self._endpoint.inherited)
            except LaneLost as lost:
                self._turn_away(sock, lost)
                continue
            self._candidates.append(candidate)
        while len(self._candidates) > _STRANGERS:
            self._candidates.pop(0).lane.close()

    def _wait(self) -> None:
        ended = self._process.exit_handle()
        ready = _poll([*(c.lane.fileno() for c in self._candidates), self._endpoint.listening_fd(), ended], _LOOK)
        if ready == [ended] and self._process.exit_status() is None:
            _poll([], _GLANCE)   # it says that it ended and not how: its word alone must not turn this into a spin

    def _hear(self) -> None:
        for candidate in list(self._candidates):
            try:
                candidate.listen()
                if candidate.joined:
                    self._let_in(candidate)
            except _WRONG as wrong:
                self._candidates.remove(candidate)
                self._turn_away(candidate.lane.sock, wrong)

    def _let_in(self, candidate: _Candidate) -> None:
        if candidate.number in self._lanes:
            raise _Stranger("that lane is joined already")
        self._lanes[candidate.number] = candidate
        self._candidates.remove(candidate)

    def _turn_away(self, sock: socket.socket, why: Exception) -> None:
        """Drop a stranger; where only the worker can come, it is the worker that is wrong."""
        if self._endpoint.inherited:
            self._check_exit(_LAST_WORDS)
            raise self._refused(f"the worker did not join as it must: {why}") from why
        logging.getLogger("comfy_env").info("a stranger on a lane of env %s was dropped: %s", self._launch.env, why)
        sock.close()

    def _check(self) -> None:
        if self._endpoint.closed:
            raise self._refused("the endpoint was closed while the worker joined")
        if len(self._lanes) < 2:
            self._check_exit(0)

    def _check_exit(self, glances: int) -> None:
        """Raise if the process has ended, or does within so many glances: a suspended machine lives none."""
        status = self._process.exit_status()
        while status is None and glances and not self._endpoint.closed:
            glances -= 1
            ended = _poll([self._process.exit_handle()], _GLANCE)
            status = self._process.exit_status()
            if ended and status is None:
                _poll([], _GLANCE)
        if status is not None:
            raise DiedBeforeJoining("the worker ended before its lanes were open", **self._facts(), status=str(status))

    def _refused(self, message: str) -> TransportRefused:
        return TransportRefused(message, **self._facts())

    def _facts(self) -> dict[str, Any]:
        return {"env": self._launch.env, "generation": self._launch.generation, "pid": self._process.pid}

    def _drop_all(self) -> None:
        for candidate in [*self._candidates, *self._lanes.values()]:
            candidate.lane.close()


def _poll(handles: list[int | None], milliseconds: int) -> list[int]:
    """Wait until a descriptor has something to say; return those that have."""
    poll = select.poll()
    for handle in handles:
        if handle is not None and handle >= 0:   # -1: closed by another thread
            poll.register(handle, select.POLLIN)
    return [handle for handle, _ in poll.poll(milliseconds)]


def join(endpoint: Any, process: Process, launch: Launch) -> Lanes:
    """Return the worker's two lanes, proved on both ends.

    Calls ``launch.sign`` at each sign of life. Raises DiedBeforeJoining with the exit status as soon as the process
    ends, TransportRefused for a worker that is not who it must be and when the endpoint is closed. Has no time limit.
    """
    return _Reception(endpoint, process, launch).run()

"""One replacement in its predecessor's hand: started with what it inherits, listened to, told, and ended with all it started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfy_env.orchestrator import events as e
from comfy_env.orchestrator import pipe
from comfy_env.process import procs
from comfy_env.process.handle import LocalProcess
from comfy_env.process.tree import end

log = logging.getLogger(__name__)

KILL = 5.0
LAST_WORDS = 15.0
_VOICES: Mapping[str, Callable[[int, dict[str, Any]], e.News]] = {
    pipe.HELLO: lambda attempt, facts: e.Hello(attempt),
    pipe.LISTENING: lambda attempt, facts: e.Listening(attempt),
    pipe.SERVING: lambda attempt, facts: e.Serving(attempt),
    pipe.CONFIRMED: lambda attempt, facts: e.Confirmed(attempt),
    pipe.GOODBYE: lambda attempt, facts: e.Goodbye(attempt, int(facts.get("code", 0))),
    pipe.FAILED: lambda attempt, facts: e.Ended(attempt, str(facts.get("why", "it did not say why"))),
}


@dataclass(frozen=True)
class Estate:
    """What a successor is started with: the program line, variables, descriptors, and whether it leaves the terminal."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    generation: int
    listener: int
    lock: int
    lineage: int | None
    detached: bool

    @property
    def passed(self) -> tuple[int, ...]:
        return tuple(fd for fd in (self.listener, self.lock, self.lineage) if fd is not None)


class Replacement:
    """`post` hears what becomes of it, on the event loop."""

    def __init__(self, attempt: int, estate: Estate, post: Callable[[e.Event], None]) -> None:
        self.attempt = attempt
        self.nonce = secrets.token_hex(16)
        self._estate = estate
        self._post = post
        self._process: LocalProcess | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._spoke = False
        self._over = False

    @property
    def pid(self) -> int:
        return self._process.pid or 0 if self._process else 0

    async def start(self) -> None:
        """Start it and begin to listen; raises OSError."""
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            with theirs:
                pid = await asyncio.to_thread(self._spawn, theirs.fileno())
            self._process = LocalProcess(pid, nonce=self.nonce)
            undo.pop_all()
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=pipe.LONGEST)
        self._reading = asyncio.create_task(self._listen(reader), name="replacement")

    def _spawn(self, end_of_pipe: int) -> int:
        estate = self._estate
        child = subprocess.Popen(
            estate.argv,
            env={
                **estate.environ,
                pipe.HANDOVER: f"{end_of_pipe}:{self.nonce}",
                pipe.GENERATION: str(estate.generation),
                procs.NONCE: self.nonce,   # what it starts carries this too, and so is found when it must end
            },
            pass_fds=(end_of_pipe, *estate.passed),
            start_new_session=estate.detached,
        )
        child.returncode = 0  # this object must never collect the process
        return child.pid

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._hear(pipe.unpacked(line))
            why = await self._last_words()
        except (pipe.PipeLost, ConnectionError, ValueError) as problem:
            why = f"it said something that cannot be understood: {problem}"
        if not self._over:
            self._post(e.Ended(self.attempt, why))

    def _hear(self, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if message.get("nonce") != self.nonce or kind not in _VOICES:
            raise pipe.PipeLost(f"{kind!r} is not what a replacement says")
        self._spoke = True
        self._over = self._over or kind in (pipe.GOODBYE, pipe.FAILED)
        self._post(_VOICES[kind](self.attempt, message))

    async def _last_words(self) -> str:
        """Return how it ended; where it never spoke, what a test of the code on disk says."""
        process = self._process
        assert process is not None
        for _ in range(100):
            if process.exit_status() is not None:
                break
            await asyncio.sleep(0.01)
        status = process.exit_status() or "it closed its pipe and still runs"
        if self._spoke:
            return f"the replacement {status}"
        found = await selftest(self._estate.environ, LAST_WORDS)
        return f"the replacement {status}" + (f": {found['problem']}" if found["problem"] else "")

    def say(self, kind: str, **facts: Any) -> None:
        """Send it a line; that it cannot be reached is heard from its end."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(pipe.packed(kind, {"nonce": self.nonce, **facts}))

    def show_listener(self) -> None:
        self.say(pipe.LISTENER, listener=self._estate.listener, lock=self._estate.lock, lineage=self._estate.lineage)

    def signal(self, signum: int) -> None:
        if self._process is not None and self._process.exit_status() is None:
            os.kill(self.pid, signum)

    async def kill(self) -> str:
        """End it and everything it started; return what would not end."""
        self._over = True
        note = ""
        if self._process is not None:
            killed = await asyncio.to_thread(end, self._process, nonce=self.nonce, deadline_seconds=KILL)
            note = killed.note
        await self.close()
        return note

    async def close(self) -> None:
        """Let go of it, whatever it does."""
        self._over = True
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError):  # it closed first
                await self._writer.wait_closed()
        if self._process is not None:
            self._process.close()


async def selftest(environ: Mapping[str, str], seconds: float, program: Sequence[str] = ("-m", "comfy_env.orchestrator")) -> dict[str, Any]:
    """Test the code on disk in a new interpreter that writes no byte code; return its document."""
    without = {name: value for name, value in environ.items() if name not in (pipe.HANDOVER, pipe.GENERATION)}
    safe = ("-P",) if getattr(sys.flags, "safe_path", False) else ()   # since Python 3.11
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-B", *safe, *program, "selftest", env=without, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )
    except OSError as error:
        return {"ok": False, "problem": f"{sys.executable} cannot be started: {error.strerror}", "fingerprint": ""}
    try:
        out, err = await asyncio.wait_for(process.communicate(), seconds)
    except asyncio.TimeoutError:
        return {"ok": False, "problem": f"its test took longer than {seconds:g} s", "fingerprint": ""}
    finally:
        with contextlib.suppress(ProcessLookupError):  # the ordinary case: it ended
            os.killpg(process.pid, signal.SIGKILL)
    return _document(out, err, process.returncode)


def _document(out: bytes, err: bytes, code: int | None) -> dict[str, Any]:
    with contextlib.suppress(ValueError, IndexError):  # it ended before it could write one
        document = json.loads(out.decode().strip().splitlines()[-1])
        return {"ok": bool(document["ok"]), "problem": str(document["problem"]), "fingerprint": str(document["fingerprint"])}
    last = err.decode(errors="replace").strip().splitlines()
    return {"ok": False, "problem": last[-1] if last else f"its test ended with {code} and no word", "fingerprint": ""}

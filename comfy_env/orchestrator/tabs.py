"""The web side's two sides: what it asks the service, and a client's web socket with what is still to be sent to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Protocol

from comfy_env.orchestrator import proto
from comfy_env.orchestrator.auth import Guard
from comfy_env.orchestrator.store import Row

log = logging.getLogger(__name__)

MOST_WAITING = 2000
MOST_CHARACTERS = 32 << 20
PATIENCE = 2.0
POLICY, RESTART, LATER = 1008, 1012, 1013
"""Why a web socket is closed."""


class Socket(Protocol):
    """A web socket as a tab needs it."""

    @property
    def closed(self) -> bool: ...
    async def send_str(self, data: str) -> None: ...
    async def close(self, *, code: int = ..., message: bytes = ...) -> Any: ...


class Desk(Protocol):
    """What the web side asks the service."""

    guard: Guard

    def health(self) -> dict[str, Any]: ...
    def state(self) -> dict[str, Any]: ...
    async def exchange(self, code: str) -> str: ...
    def code(self) -> str: ...
    async def sessions(self) -> list[dict[str, Any]]: ...
    async def open(self, id: str, agent: str, title: str) -> dict[str, Any]: ...
    async def accept(self, session: str, client: str, text: str) -> Any: ...
    async def send_now(self, session: str) -> int: ...
    def stop_turn(self, session: str) -> bool: ...
    async def events(self, session: str | None, after: int) -> list[Row]: ...
    async def act(self, what: str, facts: dict[str, Any]) -> dict[str, Any]: ...


class Tab:
    """A web socket with what is still to be sent to it. One that reads too slowly is closed: it comes back and resumes."""

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.session: str | None = None
        self.seen = 0
        self.live = False
        self.paused = False
        self.late: list[Row] = []
        self.answering: set[asyncio.Task[None]] = set()
        self._out: asyncio.Queue[str] = asyncio.Queue(MOST_WAITING)
        self._size = 0
        self.sender = asyncio.create_task(self._send())

    def say(self, frame: str) -> None:
        if self._out.full() or self._size > MOST_CHARACTERS:
            return self._too_slow()
        self._out.put_nowait(frame)
        self._size += len(frame)

    def _too_slow(self) -> None:
        if not self.sender.done():
            log.warning("a client reads too slowly and is closed")
            self.sender.cancel()

    def show(self, row: Row) -> None:
        """Show a committed event, once, in order; while the past is still being replayed it waits."""
        if self.session is not None and row.session not in (self.session, ""):
            return
        if not self.live and len(self.late) >= MOST_WAITING:
            self._too_slow()
        elif not self.live:
            self.late.append(row)
        elif row.seq > self.seen:
            self.seen = row.seq
            self.say(proto.event(row))

    def pause(self) -> None:
        """Let events wait from here on; one that is still being shown the past is caught up by whoever shows it."""
        self.paused = self.paused or self.live
        self.live = False

    def catch_up(self) -> None:
        """Begin to show events as they come."""
        self.live = True
        late, self.late = self.late, []
        for row in late:
            self.show(row)

    async def close(self, code: int, why: str) -> None:
        """Answer what was asked, send what waits, then close."""
        if self.answering:
            await asyncio.wait(self.answering, timeout=PATIENCE)
        with contextlib.suppress(asyncio.TimeoutError):  # its reader is gone: nothing more reaches it
            await asyncio.wait_for(self.sent(), PATIENCE)
        self.sender.cancel()
        await self.socket.close(code=code, message=why.encode())

    async def sent(self) -> None:
        while not self._out.empty() and not self.sender.done():
            await asyncio.sleep(0.005)

    async def _send(self) -> None:
        try:
            while True:
                frame = await self._out.get()
                await self.socket.send_str(frame)
                self._size -= len(frame)
        except (ConnectionError, RuntimeError) as gone:
            log.debug("a client left: %s", gone)
        finally:
            if not self.socket.closed:
                await self.socket.close(code=LATER)

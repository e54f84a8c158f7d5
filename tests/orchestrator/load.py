"""Clients that hide nothing: raw sockets, kept-alive connections, web sockets; every refusal, reset and lost answer is counted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable

import aiohttp

from .town import Town

PAUSE = 0.004  # seconds a client rests: the services share the processor with it


class Load:
    """Runs until `stop`; `counts` tells requests and every kind of error, `errors` some of them in words."""

    def __init__(self, town: Town, raw: int = 2, kept: int = 2) -> None:
        self.town = town
        self.address = town.address
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._guarded, args=(self._raw,), name=f"raw {n}") for n in range(raw)]
        self._threads += [threading.Thread(target=self._guarded, args=(self._kept,), name=f"kept {n}") for n in range(kept)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _guarded(self, work: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                work()
            except OSError as error:
                self.counts[f"{work.__name__} {type(error).__name__}"] += 1
                self.errors.append(f"{time.strftime('%X')} {work.__name__}: {error!r}")

    def _request(self, more: str = "") -> bytes:
        return f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{self.address[1]}\r\n{more}\r\n".encode()

    def _raw(self) -> None:
        """One connection, one request, one answer to its end."""
        with socket.create_connection(self.address, timeout=20) as connection:
            connection.sendall(self._request("Connection: close\r\n"))
            answer = b""
            while more := connection.recv(4096):
                answer += more
        self._judge("raw", answer)
        time.sleep(PAUSE)

    def _kept(self) -> None:
        """One connection for as many requests as the server grants."""
        with socket.create_connection(self.address, timeout=20) as connection, connection.makefile("rb") as file:
            while not self._stop.is_set():
                connection.sendall(self._request())
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    line = file.readline()
                    if not line:
                        raise ConnectionResetError("no answer on a kept connection")
                    head += line
                length = int(next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")).split(b":")[1])
                self._judge("kept", head + file.read(length))
                if b"connection: close" in head.lower():
                    return
                time.sleep(PAUSE)

    def _judge(self, kind: str, answer: bytes) -> None:
        good = answer.startswith(b"HTTP/1.1 200") and b'"generation"' in answer
        self.counts[kind if good else f"{kind} bad answer"] += 1
        if not good:
            self.errors.append(f"{kind}: {answer[:200]!r}")

    @property
    def bad(self) -> dict[str, int]:
        return {name: count for name, count in self.counts.items() if name not in ("raw", "kept")}


class Panel:
    """A web socket client as a panel is one: resumes after each close, sends a message every 2 ms from `restart.now` until the
    next welcome, and sends again under the same id whatever was not accepted."""

    def __init__(self, town: Town, session: str = "s", every: float = 0.002) -> None:
        self.town = town
        self.session = session
        self.every = every
        self.frames: Counter[str] = Counter()
        self.generations: list[int] = []
        self.sent: dict[str, str] = {}
        self.open: set[str] = set()
        self.retried = 0
        self.closes: Counter[int] = Counter()
        self.events: list[int] = []
        self.trouble: list[str] = []
        self._sending = False
        self._number = 0
        self._stop = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="panel")

    def __enter__(self) -> Panel:
        self._thread.start()
        self.town.wait(lambda: self.generations, 20, "the panel is welcome")
        return self

    def __exit__(self, *error: object) -> None:
        self._stop = True
        self._thread.join(60)

    async def _run(self) -> None:
        async with aiohttp.ClientSession(headers=self.town.headers) as web:
            while not self._stop or self.open:
                try:
                    await self._connected(web)
                except (aiohttp.ClientError, OSError) as error:
                    self.trouble.append(repr(error))
                    await asyncio.sleep(0.005)

    async def _connected(self, web: aiohttp.ClientSession) -> None:
        host, port = self.town.address
        async with web.ws_connect(f"http://{host}:{port}/ws") as ws:
            await ws.send_json({"kind": "hello", "v": 1, "session": self.session, "after": self.events[-1] if self.events else 0})
            sender = asyncio.create_task(self._send(ws))
            try:
                async for message in ws:
                    await self._hear(ws, json.loads(message.data))
                    if self._stop and not self.open:
                        break
            finally:
                sender.cancel()
                await asyncio.gather(sender, return_exceptions=True)
            if ws.close_code:
                self.closes[ws.close_code] += 1

    async def _hear(self, ws: aiohttp.ClientWebSocketResponse, frame: dict) -> None:
        self.frames[frame["kind"]] += 1
        match frame["kind"]:
            case "welcome" | "restart.failed":
                self.generations += [frame["generation"]] if frame["kind"] == "welcome" else []
                self._sending = False
                for id in sorted(self.open):
                    await self._msg(ws, id)
            case "restart.now":
                self._sending = True
            case "accepted":
                self.open.discard(frame["id"])
            case "retry":
                self.retried += 1
            case "event":
                self.events.append(frame["seq"])

    async def _send(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):
            while not ws.closed:
                await asyncio.sleep(self.every)
                if self._sending:
                    self._number += 1
                    id = f"m{self._number:05}"
                    self.sent[id] = f"text {id}"
                    self.open.add(id)
                    await self._msg(ws, id)
                elif self._stop:
                    await ws.send_json({"kind": "ping"})

    async def _msg(self, ws: aiohttp.ClientWebSocketResponse, id: str) -> None:
        await ws.send_json({"kind": "msg", "session": self.session, "id": id, "text": self.sent[id]})

"""The web side: requests and web sockets of one generation, over connections that somebody else accepted.

Whatever writes is answered `retry` while the store is out of our hands. Draining closes web sockets with 1012 and lets
every other connection end with its next answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from aiohttp import WSMsgType, web

from comfy_env.errors import ComfyEnvError
from comfy_env.orchestrator import proto, tabs
from comfy_env.orchestrator.problems import Fenced, Refused, StaleOwner, StoreClosed, StoreTrouble
from comfy_env.orchestrator.store import Row
from comfy_env.orchestrator.tabs import Desk, Tab

log = logging.getLogger(__name__)

RETRY = (StoreClosed, StaleOwner, StoreTrouble, Fenced)
MOST_ANSWERING = 256
HELLO_SECONDS = 10.0
SILENT_SECONDS = 30.0
LAST_MOMENT = 0.25
YEAR = 365 * 86_400
FREE = ("/health", "/auth/exchange")
"""Paths that need no token."""


class Server:
    """Serves accepted connections until it is drained; a drained one is thrown away."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._tabs: set[Tab] = set()
        self._handing: set[asyncio.Task[Any]] = set()
        self._silent: set[asyncio.BaseTransport] = set()
        self.draining = False
        app = web.Application(middlewares=[self._guard, self._answer], client_max_size=proto.LONGEST)
        app.on_response_prepare.append(self._prepare)
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/ws", self._ws),
                web.post("/auth/exchange", self._exchange),
                web.post("/auth/code", self._code),
                web.get("/api/state", self._state),
                web.get("/api/sessions", self._sessions),
                web.post("/api/sessions", self._open),
                web.post("/api/messages", self._message),
                web.get("/api/events", self._events),
                web.post("/api/do/{what}", self._act),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=LAST_MOMENT)

    async def start(self) -> None:
        await self._runner.setup()

    def take(self, connection: socket.socket) -> None:
        """Serve a connection that was accepted; on the loop's thread."""
        task = asyncio.get_running_loop().create_task(self._take(connection))
        self._handing.add(task)
        task.add_done_callback(self._handing.discard)

    async def _take(self, connection: socket.socket) -> None:
        server = self._runner.server
        assert server is not None
        with contextlib.suppress(OSError):  # it was gone before anybody could serve it
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(server, connection)
            self._silent.add(transport)
            asyncio.get_running_loop().call_later(SILENT_SECONDS, self._hang_up, transport)

    def _hang_up(self, transport: asyncio.Transport) -> None:
        """Close a connection that has not asked anything by now: descriptors are few."""
        if transport in self._silent:
            self._silent.discard(transport)
            transport.abort()

    # ------------------------------------------------------------ to all

    def show(self, rows: list[Row]) -> None:
        for tab in list(self._tabs):
            for row in rows:
                tab.show(row)

    def tell(self, frame: str) -> None:
        for tab in list(self._tabs):
            tab.say(frame)

    def pause(self) -> None:
        """Show nothing until `resume`: another process may commit what comes next."""
        for tab in self._tabs:
            tab.pause()

    def resume(self) -> None:
        """Show what was committed meanwhile, by whomever, and go on."""
        for tab in self._tabs:
            if tab.paused:
                tab.paused = False
                self._beside(tab, self._caught_up(tab))

    async def _caught_up(self, tab: Tab) -> None:
        try:
            await self._replay(tab)
        except RETRY:  # given up again: it comes back and resumes
            await tab.close(tabs.RESTART, "restart")

    @property
    def clients(self) -> int:
        return len(self._tabs)

    async def drain(self, seconds: float) -> None:
        """Close web sockets, let every other connection end with its next answer, then end those that have none."""
        self.draining = True
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        await asyncio.gather(*self._handing, return_exceptions=True)
        closing = [asyncio.create_task(tab.close(tabs.RESTART, "restart")) for tab in list(self._tabs)]
        if closing:
            await asyncio.wait(closing, timeout=seconds)
        while self._connections() and loop.time() < until:
            await asyncio.sleep(0.02)
        await self._runner.cleanup()

    def _connections(self) -> int:
        server = self._runner.server
        return len(server.connections) if server is not None else 0

    # ------------------------------------------------------------ around each request

    @web.middleware
    async def _guard(self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        guard, headers = self._desk.guard, request.headers
        if request.transport is not None:
            self._silent.discard(request.transport)
        why = guard.stranger(headers.get("Host"), headers.get("Origin"))
        if not why and request.path not in FREE:
            why = guard.unknown(headers.get("Authorization"), headers.get("Cookie"))
        return web.json_response({"error": why}, status=403) if why else await handler(request)

    @web.middleware
    async def _answer(self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        """Turn what the service raises into an answer a client can act on."""
        try:
            return await handler(request)
        except RETRY as problem:
            return web.json_response({"retry": True, "why": problem.message}, status=503, headers={"Retry-After": "1"})
        except Refused as problem:
            return web.json_response({"error": problem.message, "next": problem.hint}, status=400)
        except ComfyEnvError as problem:
            return web.json_response({"error": str(problem)}, status=500)

    async def _prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        if self.draining and not isinstance(response, web.WebSocketResponse):
            response.force_close()
            response.headers["Connection"] = "close"   # by now its own headers are made, so this one is added by hand

    # ------------------------------------------------------------ requests

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response(self._desk.health())

    async def _state(self, request: web.Request) -> web.Response:
        return web.json_response(self._desk.state())

    async def _sessions(self, request: web.Request) -> web.Response:
        return web.json_response({"sessions": await self._desk.sessions()})

    async def _open(self, request: web.Request) -> web.Response:
        wanted = proto.read(proto.Open, await _document(request))
        return web.json_response(await self._desk.open(wanted.session, wanted.agent, wanted.title))

    async def _message(self, request: web.Request) -> web.Response:
        msg = proto.read(proto.Msg, await _document(request))
        accepted = await self._desk.accept(msg.session, msg.id, msg.text)
        return web.json_response({"id": msg.id, "seq": accepted.seq, "state": accepted.state})

    async def _events(self, request: web.Request) -> web.Response:
        after = proto.number(request.query.get("after", "0"), "after")
        rows = await self._desk.events(request.query.get("session"), after)
        return web.json_response({"events": [json.loads(proto.event(row)) for row in rows]})

    async def _act(self, request: web.Request) -> web.Response:
        return web.json_response(await self._desk.act(request.match_info["what"], await _document(request)))

    async def _code(self, request: web.Request) -> web.Response:
        return web.json_response({"code": self._desk.code()})

    async def _exchange(self, request: web.Request) -> web.Response:
        code = (await _document(request)).get("code")
        device = await self._desk.exchange(code) if isinstance(code, str) else ""
        if not device:
            return web.json_response({"error": "this code is not good, or not any more"}, status=403)
        response = web.json_response({"ok": True})
        response.set_cookie(self._desk.guard.cookie, device, max_age=YEAR, httponly=True, samesite="Strict", path="/")
        return response

    # ------------------------------------------------------------ web sockets

    async def _ws(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(heartbeat=30.0, max_msg_size=proto.LONGEST)
        await socket.prepare(request)
        tab = Tab(socket)
        try:
            await self._serve(tab, socket)
        except RETRY:
            await tab.close(tabs.RESTART, "restart")
        finally:
            self._tabs.discard(tab)
            tab.sender.cancel()
        return socket

    async def _serve(self, tab: Tab, socket: web.WebSocketResponse) -> None:
        try:
            hello = proto.parse(await socket.receive_str(timeout=HELLO_SECONDS))
            if not isinstance(hello, proto.Hello):
                raise Refused("the first frame must be hello")
        except (Refused, TypeError, asyncio.TimeoutError) as problem:
            return await tab.close(tabs.POLICY, str(problem)[:100] or "no hello")
        tab.session, tab.seen = hello.session or None, hello.after
        self._tabs.add(tab)  # before the past is read: what is committed meanwhile waits its turn
        sessions = await self._desk.sessions()
        tab.say(proto.frame("welcome", v=proto.VERSION, sessions=sessions, **self._desk.health(), state=self._desk.state()))
        await self._replay(tab)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await self._answered(tab, message.data)

    async def _answered(self, tab: Tab, text: str) -> None:
        """Answer a frame beside the next ones, so that messages that come together are committed together, in order."""
        self._beside(tab, self._hear(tab, text))
        if len(tab.answering) >= MOST_ANSWERING:
            await asyncio.wait(tab.answering, return_when=asyncio.FIRST_COMPLETED)

    def _beside(self, tab: Tab, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        tab.answering.add(task)
        task.add_done_callback(tab.answering.discard)

    async def _replay(self, tab: Tab) -> None:
        while rows := await self._desk.events(tab.session, tab.seen):
            for row in rows:
                tab.say(proto.event(row))
            tab.seen = rows[-1].seq
            await tab.sent()
        tab.catch_up()

    async def _hear(self, tab: Tab, text: str) -> None:
        frame, id = None, ""
        try:
            frame = proto.parse(text)
            id = getattr(frame, "id", "") or getattr(frame, "session", "")
            tab.say(await self._done(frame))
        except RETRY as problem:
            tab.say(proto.retry(id, problem.message))
        except ComfyEnvError as problem:
            tab.say(proto.refused(id, problem.message))
        except Exception:  # whatever it is, the client waits for an answer
            log.exception("a frame could not be carried out")
            tab.say(proto.refused(id, "the service failed at this frame; its log says how"))

    async def _done(self, frame: proto.Frame) -> str:
        """Carry out a frame and return the answer."""
        match frame:
            case proto.Msg():
                accepted = await self._desk.accept(frame.session, frame.id, frame.text)
                return proto.accepted(frame.id, accepted.seq, accepted.state)
            case proto.Open():
                return proto.frame("opened", **await self._desk.open(frame.session, frame.agent, frame.title))
            case proto.SendNow():
                return proto.frame("sent_now", session=frame.session, count=await self._desk.send_now(frame.session))
            case proto.Stop():
                return proto.frame("stopped", session=frame.session, running=self._desk.stop_turn(frame.session))
            case proto.Ping():
                return proto.frame("pong")
        raise Refused("hello is said once")


async def _document(request: web.Request) -> dict[str, Any]:
    if request.content_type != "application/json":
        raise Refused("the body must be application/json")
    try:
        document = await request.json()
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise Refused("the body must be a JSON object")
    return document

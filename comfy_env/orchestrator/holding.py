"""What a process has in hand while it serves: the store, sessions, the render monitor, connections. Taken and given up whole."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from comfy_env.orchestrator import logs, messages, opening, proto
from comfy_env.orchestrator.instance import Owner
from comfy_env.orchestrator.listener import Acceptor
from comfy_env.orchestrator.problems import StoreRefused
from comfy_env.orchestrator.render import Monitor
from comfy_env.orchestrator.renders import Render
from comfy_env.orchestrator.server import Server
from comfy_env.orchestrator.sessions import Sessions
from comfy_env.orchestrator.situation import Situation
from comfy_env.orchestrator.store import Row, Store, Transaction
from comfy_env.orchestrator.tabs import Desk
from comfy_env.orchestrator.workers import Workers
from comfy_env.values import AgentSpec

log = logging.getLogger(__name__)

NO_COMFYUI = "off"


class Holding:
    """On the event loop. `changed` is called whenever the gate may see something new."""

    def __init__(
        self,
        situation: Situation,
        agents: Mapping[str, AgentSpec],
        workers: Workers,
        now: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self._situation = situation
        self.now = now
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self.sessions = Sessions(agents, workers, changed, now)
        self.monitor = self._new_monitor()
        self.acceptor = Acceptor(situation.listener, self._hand)
        self.server: Server | None = None
        self.store: Store | None = None
        self.generation = situation.generation or 0
        self.since: float | None = None
        self._devices: set[str] = set()
        self._told = True
        self.remarks: tuple[str, ...] = ()

    def _new_monitor(self) -> Monitor | None:
        url = self._situation.settings.comfyui_url
        if url in ("", NO_COMFYUI):
            return None
        return Monitor(url, self.sessions.commit, self._on_render, client=f"comfy-env-{os.getpid()}", now=self.now)

    async def take(self, desk: Desk, *, looked: bool) -> None:
        """Take the store and begin to serve. `looked`: it was checked a moment ago. Raises StoreRefused."""
        self.store = await asyncio.to_thread(self._opened, looked)
        try:
            await self._begin(desk)
        except BaseException:
            await self.give_up()
            raise

    async def _begin(self, desk: Desk) -> None:
        assert self.store is not None
        await self.sessions.start(self.store)
        if self.monitor is not None:
            await self.monitor.start()
        if self.server is None or self.server.draining:
            self.server = Server(desk)
            await self.server.start()
        self.server.resume()
        self._told = self._tell_owner()
        desk.guard.devices |= self._devices
        self.since = self.now()
        self.acceptor.start()

    def _tell_owner(self) -> bool:
        """Write down who serves; where that cannot be done now, what stands there still leads to the same address."""
        try:
            self._situation.instance.tell(Owner(os.getpid(), self.generation, self._situation.url, self._situation.version))
        except OSError as problem:
            log.warning("it cannot be written down who serves: %s", problem)
            return False
        return True

    def _opened(self, looked: bool) -> Store:
        folder = self._situation.instance.folder
        db, self.remarks = (opening.open_known(folder), ()) if looked else opening.open_checked(folder)
        given = self.generation or None
        try:
            return Store.open(db, generation=given, pid=os.getpid(), first=self._first, committed=self._committed)
        except sqlite3.Error as error:
            raise StoreRefused(f"the store in {folder} cannot be written: {error}", hint=opening.DISK) from error

    def _first(self, t: Transaction) -> None:
        """What is done in the transaction that takes the store."""
        safe = [name for name, spec in self.sessions.agents.items() if spec.replay_safe]
        messages.recover(t, safe)
        self.generation = t.db.execute("SELECT generation FROM owner").fetchone()[0]
        logs.speaking.number = str(self.generation)
        self._devices = {row[0] for row in t.db.execute("SELECT digest FROM devices")}

    async def give_up(self) -> None:
        """Answer writes with `retry`, accept no connection more, commit what was accepted, close the store."""
        if self.monitor is not None:
            await self.monitor.stop()
        await self.sessions.stop()
        await asyncio.to_thread(self.acceptor.stop)
        store, self.store = self.store, None
        if store is not None:
            await asyncio.to_thread(store.close)
        if self.server is not None:
            self.server.pause()   # all of ours was shown: what comes next may be another process's
        self.since = None

    async def drain(self, seconds: float) -> None:
        """Let the connections of this generation end."""
        if self.server is not None:
            await self.server.drain(seconds)

    def _hand(self, connection: socket.socket) -> None:
        self._loop.call_soon_threadsafe(self._take_connection, connection)

    def _take_connection(self, connection: socket.socket) -> None:
        assert self.server is not None
        self.server.take(connection)

    def _committed(self, rows: list[Row]) -> None:
        """Heard on the writer's thread."""
        self._loop.call_soon_threadsafe(self._show, rows)

    def _show(self, rows: list[Row]) -> None:
        if self.server is not None:
            self.server.show(rows)

    def _on_render(self, render: Render) -> None:
        if self.server is not None:
            self.server.tell(proto.frame("render", state=render.state.value, prompt=render.prompt))
        self._changed()

    async def housekeeping(self) -> None:
        """Hold and flush as ComfyUI renders, forget old events."""
        settings = self._situation.settings
        while True:
            await asyncio.sleep(min(1.0, settings.unknown_hold / 4 + 0.05))
            if self.store is not None:
                self._told = self._told or self._tell_owner()
                await self._keep_house(settings)

    async def _keep_house(self, settings: Any) -> None:
        render = "" if self.monitor is None else self.monitor.render.holding(self.now(), settings.unknown_hold)
        if render is not None:
            await self.sessions.hold(render)

    async def prune(self) -> None:
        settings = self._situation.settings
        await self.sessions.commit(lambda t: messages.prune(t, settings.keep_days, settings.keep_mib))

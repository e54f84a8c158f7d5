"""What clients may ask of the service, each request as one method; the web side knows nothing else of it."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from typing import Any, Protocol

from comfy_env.orchestrator import auth, messages
from comfy_env.orchestrator.events import Asked, Event, StopWanted
from comfy_env.orchestrator.gate import Gate
from comfy_env.orchestrator.holding import Holding
from comfy_env.orchestrator.messages import Accepted
from comfy_env.orchestrator.problems import Fenced, Refused
from comfy_env.orchestrator.restart import Restart
from comfy_env.orchestrator.situation import Situation
from comfy_env.orchestrator.store import Row
from comfy_env.orchestrator.target import Kind, Target
from comfy_env.orchestrator.workers import Workers


class Counsel(Protocol):
    """What the desk asks of the service around it."""

    @property
    def restart(self) -> Restart: ...
    def gate(self, by_hand: bool) -> Gate: ...
    def post(self, event: Event) -> None: ...
    def notes(self) -> list[dict[str, Any]]: ...


class ServiceDesk:
    """The desk of one process. `guard` judges every request first."""

    def __init__(self, situation: Situation, holding: Holding, workers: Workers, counsel: Counsel) -> None:
        self._situation = situation
        self._holding = holding
        self._workers = workers
        self._counsel = counsel
        self._codes = auth.Codes()
        host, port = situation.listener.getsockname()[:2]
        self.guard = auth.Guard(auth.token(situation.instance.folder), situation.settings.host or host, port)

    # ------------------------------------------------------------ what is

    def health(self) -> dict[str, Any]:
        return {"service": "comfy-env", "generation": self._holding.generation, "version": self._situation.version}

    def state(self) -> dict[str, Any]:
        restart = self._counsel.restart
        gate = self._counsel.gate(restart.by_hand)
        return {
            **self.health(),
            "pid": os.getpid(),
            "since": self._holding.since and time.time() - (self._holding.now() - self._holding.since),
            "comes_back": {"mode": self._situation.life.mode.value, "why": self._situation.life.why},
            "restart": {
                "phase": restart.phase.value,
                "to": restart.target.label if restart.target else None,
                "waiting": [str(waiting) for waiting in gate.waiting],
                "assumed": [str(waiting) for waiting in gate.assumed],
                "overdue": [str(waiting) for waiting in gate.overdue],
            },
            "agents": [{"name": name, "about": spec.about} for name, spec in sorted(self._holding.sessions.agents.items())],
            "workers": self._workers.rows(),
            "render": self._render(),
            "notes": self._counsel.notes(),
        }

    def _render(self) -> dict[str, Any]:
        monitor = self._holding.monitor
        return {"state": "off"} if monitor is None else {"state": monitor.render.state.value, "prompt": monitor.render.prompt}

    # ------------------------------------------------------------ who may come in

    def code(self) -> str:
        return self._codes.issue()

    async def exchange(self, code: str) -> str:
        """Return a device token for a one-time code, '' for a bad one."""
        if not self._codes.redeem(code):
            return ""
        device = secrets.token_urlsafe(32)
        digest = auth.digest(device)
        await self._holding.sessions.commit(lambda t: t.db.execute("INSERT INTO devices VALUES (?, '', ?)", (digest, t.now)))
        self.guard.devices.add(digest)
        return device

    # ------------------------------------------------------------ sessions

    async def sessions(self) -> list[dict[str, Any]]:
        return await self._holding.sessions.commit(messages.sessions)

    async def open(self, id: str, agent: str, title: str) -> dict[str, Any]:
        return await self._holding.sessions.open(id or secrets.token_hex(8), agent, title)

    async def accept(self, session: str, client: str, text: str) -> Accepted:
        if not client:
            raise Refused("a message needs an id of yours: the same id sent again is the same message")
        return await self._holding.sessions.accept(session, client, text)

    async def send_now(self, session: str) -> int:
        return await self._holding.sessions.flush(session)

    def stop_turn(self, session: str) -> bool:
        return self._holding.sessions.interrupt(session)

    async def events(self, session: str | None, after: int) -> list[Row]:
        return await self._holding.sessions.commit(lambda t: messages.events(t, session, after))

    # ------------------------------------------------------------ what people may do

    async def act(self, what: str, facts: dict[str, Any]) -> dict[str, Any]:
        """Carry out one of the deeds by name; raises Refused where it is none."""
        deeds: dict[str, Callable[[dict[str, Any]], Any]] = {
            "restart": self._restart, "update": self._restart, "stop": self._stop, "release": self._release, "reap": self._reap,
        }
        if what not in deeds:
            raise Refused(f"{what!r} is nothing this service can do; it can {', '.join(sorted(deeds))}")
        return await deeds[what](facts)

    async def _restart(self, facts: dict[str, Any]) -> dict[str, Any]:
        self._counsel.post(Asked(Target(Kind.ASKED, f"asked {secrets.token_hex(4)}", f"{self._situation.version}, started anew")))
        restart = self._counsel.restart
        return {"phase": restart.phase.value, "waiting": [str(waiting) for waiting in self._counsel.gate(True).waiting]}

    async def _stop(self, facts: dict[str, Any]) -> dict[str, Any]:
        asyncio.get_running_loop().call_later(0.05, self._counsel.post, StopWanted())   # after the answer
        return {"stopping": True}

    async def _release(self, facts: dict[str, Any]) -> dict[str, Any]:
        receipt = await asyncio.to_thread(self._workers.release, self._env(facts))
        return {"freed": receipt.freed if receipt else 0, "held": receipt.held if receipt else 0, "worker": receipt is not None}

    async def _reap(self, facts: dict[str, Any]) -> dict[str, Any]:
        return {"worker": await asyncio.to_thread(self._workers.reap, self._env(facts))}

    def _env(self, facts: dict[str, Any]) -> str:
        env = facts.get("env")
        if not isinstance(env, str) or not env:
            raise Refused("name the environment: {\"env\": KEY}")
        if self._workers.fenced:
            raise Fenced("a restart is under way", env=env)
        return env

"""The service of one process: puts its parts together, serves, and ends the way the restart machine says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from comfy_env.hooks.agents import AgentPlugins
from comfy_env.orchestrator import handover, messages, pipe, proto
from comfy_env.orchestrator.blockers import PluginBlockers
from comfy_env.orchestrator.desk import ServiceDesk
from comfy_env.orchestrator.events import Event, Found, StopWanted
from comfy_env.orchestrator.gate import Blocker, Gate, Kind, judge
from comfy_env.orchestrator.handover import Estate
from comfy_env.orchestrator.holding import Holding
from comfy_env.orchestrator.pipe import Heir
from comfy_env.orchestrator.problems import StaleOwner, StoreClosed, StoreRefused, StoreTrouble
from comfy_env.orchestrator.restart import Restart
from comfy_env.orchestrator.restarter import Restarter
from comfy_env.orchestrator.situation import Situation
from comfy_env.orchestrator.target import Target
from comfy_env.orchestrator.watching import SourceWatch
from comfy_env.orchestrator.workers import Workers
from comfy_env.pool.clocks import LivedClock
from comfy_env.values import Busy, Idle, Verdict

log = logging.getLogger(__name__)

MOST_NOTES = 50
MARK = 0.5
HOUR = 3600.0
TAKE_BACK = 10.0  # seconds a store that cannot be written is tried for; the restart machine gives up a little later
AGAIN = 0.25
REMIND = 60.0     # seconds after which people are told once more that nothing can be written
SOON = 2.0      # seconds the connections get when this process ends for good
T = TypeVar("T")


class Service:
    """Make it on the event loop, then `run` it."""

    def __init__(self, situation: Situation, plugins: AgentPlugins, heir: Heir | None = None, lineage: int | None = None) -> None:
        self.situation = situation
        self._heir = heir
        self._lineage = lineage
        self._clock = LivedClock()
        self._plugins = plugins
        self._blockers = PluginBlockers(plugins.blockers, situation.settings.blocker_reply, self.now)
        self._notes: deque[dict[str, Any]] = deque(maxlen=MOST_NOTES)
        self._confirmed = heir is None
        self._announced: set[str] = set()
        self.workers = Workers(now=self.now)
        self.holding = Holding(situation, plugins.agents, self.workers, self.now, self._changed)
        self.desk = ServiceDesk(situation, self.holding, self.workers, self)
        self.restarter = Restarter(self, situation.rules(), poll=situation.settings.gate_poll)

    async def run(self) -> tuple[int, bool]:
        """Serve until this process must end; return its status and whether a successor serves. Raises StoreRefused."""
        self._clock.attend(True)
        self._hear_signals()
        await self.holding.take(self.desk, looked=self._heir is not None)
        self._say(pipe.SERVING)
        self._tell_lineage(generation=self.holding.generation)
        for remark in self.holding.remarks:
            self.note(remark)
        log.info("serving %s, generation %s (%s)", self.situation.url, self.holding.generation, self.situation.life.why)
        tasks = [asyncio.create_task(self._kept_going(work), name=work.__qualname__) for work in self._works()]
        try:
            code, handed_over = await self.restarter.left
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._end(code, handed_over)
        return code, handed_over

    def _works(self) -> Iterable[Callable[[], Awaitable[None]]]:
        yield self._mark
        yield self.restarter.run
        yield self.holding.housekeeping
        yield self._prune
        yield self._confirm
        if self.situation.watched and not self.situation.settings.updates_off:
            yield self._watch

    async def _kept_going(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a part that must not end before the service; one that fails is told and begun again."""
        while True:
            try:
                return await work()
            except (StoreClosed, StaleOwner, StoreTrouble) as problem:
                log.info("%s waits for the store: %s", work.__qualname__, problem.message)
            except Exception:  # the service goes on without this part for a moment
                log.exception("%s failed and is begun again", work.__qualname__)
            await asyncio.sleep(1.0)

    async def _mark(self) -> None:
        again = 0.0
        while True:
            self._clock.mark()
            trouble = self.holding.store.trouble if self.holding.store is not None else ""
            if trouble and self.now() >= again:
                again = self.now() + REMIND
                self.note(f"messages are not accepted now: {trouble}")
            await asyncio.sleep(MARK)

    async def _prune(self) -> None:
        while True:
            await self.holding.prune()
            await asyncio.sleep(HOUR)

    async def _confirm(self) -> None:
        """Tell the predecessor that it may go, once this process has served for a while and still commits."""
        begun = self.now()
        while self.now() - begun < (0.0 if self._heir is None else self.situation.settings.confirm):
            await asyncio.sleep(min(MARK, self.situation.settings.confirm))
        if self._heir is not None:
            while not await self._still_commits():
                await asyncio.sleep(AGAIN)
            self._confirmed = True
            self._say(pipe.CONFIRMED)
            self._changed()

    async def _still_commits(self) -> bool:
        try:
            await self.holding.sessions.commit(self._remembered("loaded", f"generation {self.holding.generation}", ""))
        except StoreTrouble as trouble:
            log.warning("the predecessor stands by: %s", trouble.message)
            return False
        return True

    async def _watch(self) -> None:
        watch = SourceWatch(self.situation.boot, self.selftest, self._found, self.note, lambda: self.holding.store is not None)
        await watch.run(self.situation.settings.dev_poll)

    async def _found(self, event: Event) -> None:
        """Hear of a tree; a plugin that thinks long about it keeps nobody else waiting."""
        refusal = await asyncio.to_thread(self._plugins.refusal, "tree", event.target.id) if isinstance(event, Found) else ""
        self.note(f"a new build is not loaded: {refusal}") if refusal else self.post(event)

    def _hear_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(signum) is not signal.SIG_IGN:   # nohup, or a shell that keeps Ctrl-C from a background job
                loop.add_signal_handler(signum, self._stop)

    def _stop(self) -> None:
        """End, or have the successor end; also in the last moments of this process, when nobody listens to events any more."""
        if self.restarter.left.done() and self.restarter.replacement is not None:
            self.restarter.replacement.signal(signal.SIGTERM)
        self.post(StopWanted())

    def _say(self, kind: str, **facts: Any) -> None:
        if self._heir is not None and not self._heir.say(kind, **facts):
            log.info("the predecessor is gone")

    def _tell_lineage(self, **facts: Any) -> None:
        """Tell the front in the terminal who serves, or how this process ends."""
        if self._lineage is not None:
            with contextlib.suppress(OSError):  # the front is gone, and with it the terminal
                os.write(self._lineage, json.dumps({"pid": os.getpid(), **facts}).encode() + b"\n")

    async def _end(self, code: int, handed_over: bool) -> None:
        """End what is ours. After a handover that is nothing but what still runs beside."""
        if not self._confirmed:
            self._say(pipe.GOODBYE, code=code)
        await self.restarter.close()
        if handed_over:
            return
        self._tell_lineage(status=code)
        await self.holding.give_up()
        await self.holding.drain(SOON)
        await asyncio.to_thread(self.workers.close)

    # ------------------------------------------------------------ what the restarter asks

    @property
    def restart(self) -> Restart:
        return self.restarter.restart

    def now(self) -> float:
        return self._clock.now()

    def post(self, event: Event) -> None:
        self.restarter.post(event)

    def _changed(self) -> None:
        self.restarter.changed()

    def fence(self, up: bool) -> None:
        self.holding.sessions.fence(up)

    def gate(self, by_hand: bool) -> Gate:
        settings, now = self.situation.settings, self.now()
        found = judge(self._all_blockers(now), now, hold=settings.unknown_hold, overdue=settings.blocker_announce, asked=by_hand)
        for waiting in found.overdue:
            if waiting.title not in self._announced:
                self._announced.add(waiting.title)
                self.note(f"a restart has been waiting for {waiting}")
        return found

    def _all_blockers(self, now: float) -> Iterable[Blocker]:
        yield from self.holding.sessions.blockers()
        yield Blocker(Kind.RENDER, self.holding.monitor.render.verdict() if self.holding.monitor else Idle())
        yield Blocker(Kind.UPTIME, self._uptime(now))
        yield Blocker(Kind.SUCCESSION, Idle() if self._confirmed else Busy("this generation is on probation", self.holding.since))
        yield from self._blockers.blockers()

    def _uptime(self, now: float) -> Verdict:
        since = self.holding.since
        young = since is None or now - since < self.situation.settings.min_uptime
        return Busy(f"serves for less than {self.situation.settings.min_uptime:g} s", since) if young else Idle()

    async def ask_plugins(self) -> None:
        await self._blockers.ask()

    def estate(self) -> Estate:
        return self.situation.estate(self.holding.generation, self._lineage)

    async def selftest(self) -> dict[str, Any]:
        return await handover.selftest(self.situation.environ, self.situation.settings.selftest)

    async def prepare(self, target: Target) -> None:
        """See that the store can be written, or no successor could take it; raises StoreTrouble."""
        await self.holding.sessions.commit(self._remembered("begun", target.label, ""))

    async def close_pool(self) -> None:
        await asyncio.to_thread(self.workers.close)

    async def give_up(self) -> None:
        await self.holding.give_up()

    async def drain(self) -> None:
        await self.holding.drain(self.situation.settings.drain)

    async def take_back(self) -> None:
        """Take the store again, for a while if the disk does not let us; raises StoreRefused."""
        until = self.now() + TAKE_BACK
        while True:
            try:
                return await self.holding.take(self.desk, looked=True)
            except (StoreRefused, StoreTrouble) as problem:
                if self.now() > until:
                    raise
                log.warning("the store cannot be taken back yet: %s", problem.message)
            await asyncio.sleep(AGAIN)

    # ------------------------------------------------------------ what people hear

    def notes(self) -> list[dict[str, Any]]:
        return list(self._notes)

    def note(self, line: str) -> None:
        """Tell people a line: in the log, in every panel, and in the store while that is ours."""
        log.warning("%s", line)
        self._notes.append({"at": time.time(), "text": line})
        store = self.holding.store
        if store is not None:
            with contextlib.suppress(StoreClosed):  # it was told all the same
                store.write(lambda t: t.event(messages.SERVICE, "note", json.dumps({"text": line})))

    def _tell(self, kind: str, **facts: Any) -> None:
        log.info("%s %s", kind, facts)
        if self.holding.server is not None:
            self.holding.server.tell(proto.frame(kind, **facts))

    def tell_pending(self, target: Target | None, gate: Gate) -> None:
        to = target.label if target else None
        self._tell("restart.pending", **{"from": self.situation.version}, to=to, blockers=[str(waiting) for waiting in gate.waiting])

    def tell_now(self, target: Target) -> None:
        text = f"{self.situation.version} → {target.label}: the orchestrator restarts; your session resumes by itself"
        self._tell("restart.now", **{"from": self.situation.version}, to=target.label, text=text)

    def tell_failed(self, target: Target, reason: str, restored: bool) -> None:
        self._tell("restart.failed", to=target.label, reason=reason, rolled_back=restored)
        self.note(f"{target.label} could not be loaded, {self.situation.version} goes on: {reason}")
        store = self.holding.store
        if store is not None:
            with contextlib.suppress(StoreClosed):  # it was told all the same
                store.write(self._remembered("failed", target.label, reason))

    def _remembered(self, outcome: str, target: str, reason: str) -> Callable[[Any], Any]:
        query = "INSERT INTO updates (kind, target, outcome, reason, at) VALUES ('restart', ?, ?, ?, ?)"
        return lambda t: t.db.execute(query, (target, outcome, reason, t.now)).rowcount

"""Drives the restart machine: hears events, carries out effects, asks the gate. Runs on the service's event loop.

One event is worked off after the other; what an effect takes time for runs beside and answers with an event that names
its attempt.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from comfy_env.orchestrator import effects as f
from comfy_env.orchestrator import events as e
from comfy_env.orchestrator import ownership, pipe
from comfy_env.orchestrator.gate import Gate, Kind
from comfy_env.orchestrator.handover import Estate, Replacement
from comfy_env.orchestrator.restart import Phase, Restart, Rules
from comfy_env.orchestrator.state import next_due, step
from comfy_env.orchestrator.target import Target
from comfy_env.orchestrator.waiting import woken

log = logging.getLogger(__name__)

SLICE = 1.0


class Host(Protocol):
    """What the restarter asks the service."""

    def now(self) -> float: ...
    def fence(self, up: bool) -> None: ...
    def gate(self, by_hand: bool) -> Gate: ...
    async def ask_plugins(self) -> None: ...
    def estate(self) -> Estate: ...
    async def selftest(self) -> dict[str, Any]: ...
    async def prepare(self, target: Target) -> None: ...
    async def close_pool(self) -> None: ...
    async def give_up(self) -> None: ...
    async def drain(self) -> None: ...
    async def take_back(self) -> None: ...
    def note(self, line: str) -> None: ...
    def tell_pending(self, target: Target | None, gate: Gate) -> None: ...
    def tell_now(self, target: Target) -> None: ...
    def tell_failed(self, target: Target, reason: str, restored: bool) -> None: ...


class Updater(Protocol):
    """Changes the disk. `apply` raises what a failed installation raises."""

    async def check(self) -> Target | None: ...
    async def apply(self, target: Target) -> None: ...
    async def put_back(self) -> bool: ...


class NoUpdates:
    """The updater of a source tree: it belongs to whoever works in it and is never changed."""

    async def check(self) -> Target | None:
        return None

    async def apply(self, target: Target) -> None:
        raise OSError(f"{target.label} cannot be installed over a source tree")

    async def put_back(self) -> bool:
        return True


class Restarter:
    """`left` is done when this process must end: with its status and whether a successor serves.

    Raises NotOurLife in a process that a client owns.
    """

    def __init__(
        self, host: Host, rules: Rules, updater: Updater | None = None, *, poll: float = 5.0, updated: Iterable[float] = ()
    ) -> None:
        ownership.process.must_be_ours()
        self.restart = Restart(rules, updated=tuple(updated))
        self.left: asyncio.Future[tuple[int, bool]] = asyncio.get_running_loop().create_future()
        self.replacement: Replacement | None = None
        self._host = host
        self._updater = updater or NoUpdates()
        self._poll = poll
        self._events: deque[e.Event] = deque()
        self._working = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._last: dict[type[f.Effect], asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._told: tuple[Kind, ...] | None = None
        self._tell_at = 0.0

    # ------------------------------------------------------------ events

    def post(self, event: e.Event) -> None:
        """Work off an event, and those that its effects post, in order."""
        self._events.append(event)
        if self._working:
            return
        self._working = True
        try:
            while self._events:
                self._step(self._events.popleft())
        finally:
            self._working = False
        self._wake.set()

    def _step(self, event: e.Event) -> None:
        before = self.restart.phase
        self.restart, effects = step(self.restart, event, self._host.now())
        if self.restart.phase is not before:
            log.info("restart: %s -> %s (%s)", before.value, self.restart.phase.value, type(event).__name__)
        for effect in effects:
            self._do(effect)

    def changed(self) -> None:
        """Something the gate looks at has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Ask the gate and watch the limits until this process must end."""
        look_at = 0.0
        while not self.left.done():
            now = self._host.now()
            if self._wake.is_set() or now >= look_at:
                self._wake.clear()
                await self._look()
                look_at = self._host.now() + self._poll
            await self._rest(look_at)
            self.post_tick()

    def post_tick(self) -> None:
        due = next_due(self.restart)
        if due is not None and self._host.now() >= due:
            self.post(e.Tick())

    async def _rest(self, look_at: float) -> None:
        now, due = self._host.now(), next_due(self.restart)
        until = min(look_at, due if due is not None else look_at, now + SLICE)
        await woken(self._wake, max(0.005, until - now))

    async def _look(self) -> None:
        """Ask every blocker while a restart waits; plugins, which take a thread each, only when nobody else objects."""
        if self.restart.phase is not Phase.ARMED:
            return
        gate = self._host.gate(self.restart.by_hand)
        if all(waiting.kind is Kind.PLUGIN for waiting in gate.waiting):
            await self._host.ask_plugins()
            gate = self._host.gate(self.restart.by_hand)
        if self.restart.phase is not Phase.ARMED:
            return
        if gate.open:
            for waiting in gate.assumed:
                self._host.note(f"a restart does not wait any longer for {waiting}")
            return self.post(e.GateOpened())
        told = tuple(waiting.kind for waiting in gate.waiting)
        if told != self._told and self._host.now() >= self._tell_at:   # not at every message of a busy agent
            self._told, self._tell_at = told, self._host.now() + self._poll
            self._host.tell_pending(self.restart.target, gate)

    # ------------------------------------------------------------ effects

    def _do(self, effect: f.Effect) -> None:
        at_once = _AT_ONCE.get(type(effect))
        if at_once is not None:
            return at_once(self, effect)
        task = asyncio.get_running_loop().create_task(self._carried_out(effect), name=type(effect).__name__)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._last[type(effect)] = task

    async def _carried_out(self, effect: Any) -> None:
        """Carry out an effect and post its answer, which for whatever is raised is the one that tells why."""
        deed, failed = _BESIDE[type(effect)]
        try:
            answer = await deed(self, effect)
        except Exception as error:  # the machine decides what a failure means
            log.exception("%s failed", type(effect).__name__)
            answer = failed(effect, f"{type(error).__name__}: {error}")
        self.post(answer)

    def _fence(self, effect: f.RaiseFence) -> None:
        self._host.fence(True)
        self.post(e.Rechecked(effect.attempt, self._host.gate(self.restart.by_hand).open))

    def _lift(self, effect: f.LiftFence) -> None:
        self._host.fence(False)

    def _note(self, effect: f.Note) -> None:
        self._host.note(effect.line)

    def _tell_pending(self, effect: f.TellPending) -> None:
        self._told, self._tell_at = None, 0.0
        if effect.target is None:
            self._host.tell_pending(None, Gate())
        self._wake.set()

    def _tell_now(self, effect: f.TellNow) -> None:
        self._host.tell_now(effect.target)

    def _tell_failed(self, effect: f.TellFailed) -> None:
        self._host.tell_failed(effect.target, effect.reason, effect.restored)

    def _show_listener(self, effect: f.SendListener) -> None:
        assert self.replacement is not None
        self.replacement.show_listener()

    def _commit(self, effect: f.SendCommit) -> None:
        assert self.replacement is not None
        self.replacement.say(pipe.COMMIT)

    def _pass_on(self, effect: f.PassOn) -> None:
        assert self.replacement is not None
        self.replacement.signal(signal.SIGTERM)

    def _leave(self, effect: f.Leave) -> None:
        if not self.left.done():
            self.left.set_result((effect.code, effect.handed_over))

    async def _check(self, effect: f.Check) -> e.Event:
        target = await self._updater.check()
        return e.CheckEmpty() if target is None else e.Found(target)

    async def _apply(self, effect: f.Apply) -> e.Event:
        await self._updater.apply(effect.target)
        return e.Applied(effect.attempt)

    async def _spawn(self, effect: f.Spawn) -> e.Event:
        await self._host.prepare(effect.target)
        self.replacement = Replacement(effect.attempt, self._host.estate(), self.post)
        await self.replacement.start()
        log.info("replacement %s was started", self.replacement.pid)
        return e.Spawned(effect.attempt)

    async def _prove(self, effect: f.Prove) -> e.Event:
        await self._host.prepare(effect.target)
        found = await self._host.selftest()
        return e.Proved(effect.attempt) if found["ok"] else e.ProofFailed(effect.attempt, found["problem"])

    async def _close_pool(self, effect: f.ClosePool) -> e.Event:
        await self._host.close_pool()
        return e.PoolClosed(effect.attempt)

    async def _give_up(self, effect: f.Yield) -> e.Event:
        await self._host.give_up()
        return e.Yielded(effect.attempt)

    async def _drain(self, effect: f.Drain) -> e.Event:
        await self._host.drain()
        return e.Drained(effect.attempt)

    async def _kill(self, effect: f.Kill) -> e.Event:
        await self._over(f.Spawn)   # what is being started cannot be ended yet
        replacement, self.replacement = self.replacement, None
        note = await replacement.kill() if replacement is not None else ""
        if note:
            self._host.note(f"the replacement would not end: {note}")
        return e.Killed(effect.attempt)

    async def _take_back(self, effect: f.TakeBack) -> e.Event:
        await self._over(f.Yield)
        await self._host.take_back()
        return e.TakenBack(effect.attempt)

    async def _put_back(self, effect: f.PutFilesBack) -> e.Event:
        return e.PutBack(effect.attempt, await self._updater.put_back())

    async def _over(self, kind: type[f.Effect]) -> None:
        """Wait until the last effect of a kind was carried out, if one is."""
        task = self._last.get(kind)
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """End what still runs beside, and let go of the replacement."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.replacement is not None:
            await self.replacement.close()


_AT_ONCE: Mapping[type[f.Effect], Callable[[Restarter, Any], None]] = {
    f.RaiseFence: Restarter._fence,
    f.LiftFence: Restarter._lift,
    f.Note: Restarter._note,
    f.TellPending: Restarter._tell_pending,
    f.TellNow: Restarter._tell_now,
    f.TellFailed: Restarter._tell_failed,
    f.SendListener: Restarter._show_listener,
    f.SendCommit: Restarter._commit,
    f.PassOn: Restarter._pass_on,
    f.Leave: Restarter._leave,
}

Deed = Callable[[Restarter, Any], Awaitable[e.Event]]
Failed = Callable[[Any, str], e.Event]

_BESIDE: Mapping[type[f.Effect], tuple[Deed, Failed]] = {
    f.Check: (Restarter._check, lambda effect, why: e.CheckEmpty()),
    f.Apply: (Restarter._apply, lambda effect, why: e.ApplyFailed(effect.attempt, why)),
    f.Spawn: (Restarter._spawn, lambda effect, why: e.SpawnFailed(effect.attempt, why)),
    f.Prove: (Restarter._prove, lambda effect, why: e.ProofFailed(effect.attempt, why)),
    f.ClosePool: (Restarter._close_pool, lambda effect, why: e.PoolClosed(effect.attempt)),
    f.Yield: (Restarter._give_up, lambda effect, why: e.YieldFailed(effect.attempt, why)),
    f.Drain: (Restarter._drain, lambda effect, why: e.Drained(effect.attempt)),
    f.Kill: (Restarter._kill, lambda effect, why: e.Killed(effect.attempt)),
    f.TakeBack: (Restarter._take_back, lambda effect, why: e.TakeBackFailed(effect.attempt, why)),
    f.PutFilesBack: (Restarter._put_back, lambda effect, why: e.PutBack(effect.attempt, False)),
}

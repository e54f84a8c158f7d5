"""One environment in the pool: the machine's value, the handles of its workers, the tickets of its callers.

`post` is the only way the machine's value changes. It runs `step` under the seat's lock and hands the effects to the
carrier after the lock is released, so no effect can ever run under it.
"""

from __future__ import annotations

import contextlib
import logging
import select
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from comfy_env import errors
from comfy_env.envs.source_watch import SourceWatch
from comfy_env.hooks.registry import Registry
from comfy_env.hooks.relay import Relay
from comfy_env.lifecycle import story
from comfy_env.lifecycle.deaths import Reason
from comfy_env.lifecycle.effects import Effect
from comfy_env.lifecycle.events import Event, KillWanted, Unpark
from comfy_env.lifecycle.lane import in_running_prompt
from comfy_env.lifecycle.machine import step
from comfy_env.lifecycle.record import Env, State, with_ledger
from comfy_env.pool.performer import Performer
from comfy_env.pool.tickets import Ticket
from comfy_env.process.crashes import CrashPipe
from comfy_env.process.output import Output
from comfy_env.process.patience import Patience
from comfy_env.process.rundir import WorkerRun
from comfy_env.settings import Settings
from comfy_env.transport.endpoint import SocketEndpoint
from comfy_env.transport.session import Session
from comfy_env.values import EnvPlan, ExitStatus, Lanes, Launch, Process, Released

LAST_WORDS = 0.005
"""Seconds a dead worker's output is still read for its error message."""

Carry = Callable[["Seat", "Turn"], None]


@dataclass(eq=False, slots=True)
class Turn:
    """One step of the machine and what follows from it; ``thread`` carries its effects out, ``at`` is the lived time of the step.

    It is written down before the machine's value changes; ``taken`` tells that it has, ``done`` how many effects were carried out.
    """

    before: Env
    after: Env
    event: Event
    effects: tuple[Effect, ...]
    at: float
    thread: int
    taken: bool = False
    done: int = 0


@dataclass(eq=False)
class Worker:
    """The handles of one generation's process. ``receipt`` is how its last release at rest ended, ``receipts`` how many have,
    ``sources`` what may make it stale, ``built`` whether its environment can be built anew under it, ``program`` the line its
    process showed when it joined, ``exit_seen`` how it ended where its backend does not say, ``complained`` whether that was
    told, ``crashes`` where its faulthandler tells of a crash, ``ending`` is held while it is being ended.
    """

    generation: int
    relay: Relay
    launch: Launch
    run: WorkerRun
    endpoint: SocketEndpoint
    output: Output
    process: Process | None = None
    lanes: Lanes | None = None
    session: Session | None = None
    python: str = ""
    watched: bool = False
    reading: threading.Lock = field(default_factory=threading.Lock)
    closed: bool = False
    receipt: Released | errors.ComfyEnvError | None = None
    receipts: int = 0
    side_rests_until: float = 0.0
    interpreter: str = ""
    program: str = ""
    sources: SourceWatch | None = None
    built: bool = False
    exit_seen: ExitStatus | None = None
    complained: bool = False
    crashes: CrashPipe | None = None
    ending: threading.Lock = field(default_factory=threading.Lock)

    def feed(self, fd: int) -> bool:
        """Read what an output pipe holds now; False at its end. One reader at a time, none after `close_process`."""
        with self.reading:
            return not self.closed and self.output.feed(fd)

    def drain(self, seconds: float) -> None:
        """Read what is left in the output pipes for at most so long; the end of file is never waited for."""
        patience = Patience(seconds)
        ended: set[int] = set()
        with contextlib.suppress(OSError):  # then its last words are lost, and nothing else
            while patience.left() and (ready := [fd for fd in self._readable() if fd not in ended]):
                ended.update(fd for fd in ready if not self.feed(fd))

    def _readable(self) -> list[int]:
        with self.reading:
            if self.closed or self.process is None:
                return []
            poll = select.poll()
            for fd in self.process.outputs:
                poll.register(fd, select.POLLIN)
            return [fd for fd, _ in poll.poll(0)]

    def close_process(self) -> None:
        """Close the process's descriptors; its last words stay."""
        with self.reading:
            self.closed = True
            close = getattr(self.process, "close", None)
            if close is not None:
                close()
            if self.crashes is not None:
                self.crashes.close()
            self.output.close()


@dataclass(eq=False)
class Seat:
    """``workers`` maps a generation to its handles until its death is complete, ``begun`` a running call to the lived time
    it began, where an observer wants to know; ``keeper`` is its zygote's (`pool.zygotes`). ``news`` is what observers were
    not told yet, oldest first; whoever tells them holds ``telling``, and ``told`` is False.
    """

    plan: EnvPlan
    env: Env
    relay: Relay
    clock: Callable[[], float]
    carry: Carry
    registry: Registry
    lock: threading.Lock = field(default_factory=threading.Lock)
    changed: threading.Condition = field(init=False)
    watchers: int = 0
    workers: dict[int, Worker] = field(default_factory=dict)
    tickets: dict[int, Ticket] = field(default_factory=dict)
    performers: dict[int, Performer] = field(default_factory=dict)
    keeper: Any = None
    begun: dict[int, float] = field(default_factory=dict)
    news: deque[Turn] = field(default_factory=deque)
    telling: Any = field(default_factory=threading.RLock)
    told: bool = True
    _owed: set[Turn] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.changed = threading.Condition(self.lock)
        self.log = logging.getLogger(f"comfy_env.env.{self.key}")

    @property
    def key(self) -> str:
        return self.env.key

    @property
    def worker(self) -> Worker | None:
        """The handles of the present generation."""
        return self.workers.get(self.env.row.generation)

    def post(self, event: Event) -> None:
        """Tell the machine what happened and carry out what it asks for, also where the thread is torn out meanwhile (Ctrl-C)."""
        try:
            with self.lock:
                turn = self._advance(event)
            self._carry_out(turn)
        except BaseException:
            self._carry_owed()
            raise

    def post_if(self, holds: Callable[[Env], bool], event: Event, then: Callable[[], Any] | None = None) -> bool:
        """Post only if `holds` of the present value, running `then` under the same lock; tell whether it did."""
        try:
            with self.lock:
                if not holds(self.env):
                    return False
                if then is not None:
                    then()
                turn = self._advance(event)
            self._carry_out(turn)
        except BaseException:
            self._carry_owed()
            raise
        return True

    def _advance(self, event: Event) -> Turn | None:
        """Let the machine take a step, under the lock; None where nothing follows from it."""
        before, now = self.env, self.clock()
        after, effects = step(before, event, now)
        if after is before and not effects:
            return None
        turn = Turn(before, after, event, effects, now, threading.get_ident())
        if effects:
            self._owed.add(turn)   # before the value changes: a step without its effects hangs callers
        self.env, turn.taken = after, True
        self.news.append(turn)
        if self.watchers and after.row.state is not before.row.state:
            self.changed.notify_all()
        return turn

    def _carry_out(self, turn: Turn | None) -> None:
        if turn is not None:
            self.carry(self, turn)
            self._owed.discard(turn)

    def _carry_owed(self) -> None:
        """Carry out, what this thread owes; the effect it was torn out of is carried out anew, none of a step not taken."""
        me = threading.get_ident()
        for turn in [turn for turn in tuple(self._owed) if turn.thread == me]:
            self._owed.discard(turn)
            if turn.taken:
                self.carry(self, turn)

    def take(self, plan: EnvPlan, ticket: Ticket) -> bool:
        """Seat a call's ticket, if the environment's plan is that call's; from here on the plan stays."""
        with self.lock:
            if self.plan is not plan and self.plan != plan:
                return False
            self.tickets[ticket.number] = ticket
            return True

    def adopt(self, plan: EnvPlan, relay: Relay, limits: Settings) -> bool:
        """Take another plan for the environment and retire the worker that was made by the present one.

        Refused while a call runs or waits, and while the prompt runs that the worker served.
        """

        def swap() -> None:
            self.plan, self.relay = plan, relay
            self.env = self.env._replace(limits=limits, killable="killable" in relay.capabilities)

        idle = lambda env: not self.tickets and not in_running_prompt(env)  # noqa: E731
        if not self.post_if(idle, KillWanted(Reason.STALE_ENV), then=swap):
            return False
        self.unpark()  # the deaths were the other plan's
        return True

    def limit(self, name: str, value: Any) -> None:
        """Let one limit be what the pool's settings say now, unless the plan has its own; judged by from the next event on."""
        with self.lock:
            if getattr(self.env.limits, name) != value and name not in dict(self.plan.limits):
                self.env = self.env._replace(limits=replace(self.env.limits, **{name: value}))

    def unpark(self) -> bool:
        """End the pause after too many deaths because somebody says that it may; tell whether there was one."""
        return self.post_if(lambda env: env.ledger.parked_until is not None, Unpark())

    def remark(self, line: str) -> None:
        """Enter a line in the story; nothing else changes."""
        with self.lock:
            ledger = self.env.ledger
            told = story.told(ledger.story, self.clock(), line, ledger.generation)
            self.env = with_ledger(self.env, story=told)

    def wait_for(self, holds: Callable[[Env], bool], patience: Patience) -> bool:
        """Wait until `holds` of the machine's value, or the patience is over; tell whether it came to be."""
        with self.changed:
            self.watchers += 1
            try:
                while not holds(self.env):
                    wait = patience.slice()
                    if not wait:
                        return False
                    self.changed.wait(wait)
                return True
            finally:
                self.watchers -= 1

    def fallback(self) -> Relay:
        """Return the relay the plan allows where its environment is not there, and let the machine know its nature."""
        relay = self.registry.backend(self.plan.fallback or self.plan.backend, self.plan)
        with self.lock:
            self.env = self.env._replace(killable="killable" in relay.capabilities)
        return relay

    def performer(self, generation: int) -> Performer:
        """Return the performer of one generation's effects."""
        with self.lock:
            found = self.performers.get(generation)
            if found is None:
                found = self.performers[generation] = Performer(f"comfy-env {self.key}#{generation}")
            return found

    def forget_before(self, generation: int) -> None:
        """Drop what is left of older generations, but for the last one's words; under the lock."""
        for old in [g for g in self.workers if g < generation - 1]:
            del self.workers[old]
        for old in [g for g in self.performers if g < generation]:
            del self.performers[old]


def has_process(env: Env) -> bool:
    """Tell whether the row stands for a process that is alive or being ended."""
    return env.row.state not in (State.COLD, State.GONE, State.PARKED)

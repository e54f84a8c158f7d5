"""`WorkerPool`: the public face of the core. Thread-safe; needs neither ComfyUI nor torch nor a GPU."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from comfy_env import errors, ports
from comfy_env.hooks.registry import Registry
from comfy_env.lifecycle import events
from comfy_env.lifecycle.deaths import Reason
from comfy_env.lifecycle.machine import new_env
from comfy_env.lifecycle.record import State
from comfy_env.lifecycle.story import lines_text
from comfy_env.pool import ticking, unmade
from comfy_env.pool.asides import ask_aside
from comfy_env.pool.asyncs import in_thread
from comfy_env.pool.carrier import Carrier
from comfy_env.pool.commands import interrupt, release
from comfy_env.pool.house import House
from comfy_env.pool.journal import Journal
from comfy_env.pool.lanes import abandon, ask, refuse_reentry
from comfy_env.pool.observing import catch_up
from comfy_env.pool.seat import Seat, has_process
from comfy_env.pool.shutdown import Exit, shut_down
from comfy_env.pool.tickets import DEFAULT_OPTIONS, Ticket
from comfy_env.pool.views import Record, picture
from comfy_env.process.patience import Patience
from comfy_env.settings import Settings
from comfy_env.values import BuildStep, CallOptions, Changes, EnvPlan, EnvState, EnvStatus, Released, Want

_OVER = (State.COLD, State.GONE, State.PARKED, State.WEDGED)
_REASONS = {reason.name.lower(): reason for reason in Reason}


class WorkerPool:
    """Owns the workers of all environments: births, calls, idle sweeps, deaths.

    Nothing is started, opened or registered until the first call to an environment. Use it as a context manager, or
    `close` it; an interpreter that exits closes it too, and one that is killed takes its workers with it.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        registry: Registry | None = None,
        clock: ports.Clock | None = None,
        shelf: ports.StandInShelf | None = None,
        prompt: ports.Prompt | None = None,
        memory: ports.Memory | None = None,
        observers: Iterable[object] = (),
    ) -> None:
        self.settings = _checked(settings) if settings is not None else Settings.read()
        self.registry = registry if registry is not None else Registry(settings=self.settings)
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._seats: dict[str, Seat] = {}
        self._closed = False
        self._gone = threading.Event()
        self._exit = Exit(self)
        self._house = House(
            self.settings,
            self.registry,
            tuple(observers),
            clock=clock,
            shelf=shelf or ports.NullShelf(),
            prompt=prompt or ports.NullPrompt(),
            memory=memory or ports.NullMemory(),
            seats=self.seats,
            tick=self.tick,
            born=self._exit.arm,
        )
        self._journal = Journal(self._house, self.seats)
        self._carrier = Carrier(self._house, self._journal.changed)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ------------------------------------------------------------ calls

    def call(
        self, plan: EnvPlan, target: str | Callable[..., Any], /, *args: Any, options: CallOptions | None = None, **kwargs: Any
    ) -> Any:
        """Run a function in the plan's environment and return its value.

        `target` is "module:function", resolved in the worker, or a callable that travels by value to an environment of
        this Python's own minor version. Blocks; raises subclasses of `CallFailed` and `SpawnFailed`, `EncodeRefused`,
        `PoolClosed`. Not retried.
        """
        return self._serve(self._seat(plan), plan, self._ticket(options), target, args, kwargs)

    async def call_async(
        self, plan: EnvPlan, target: str | Callable[..., Any], /, *args: Any, options: CallOptions | None = None, **kwargs: Any
    ) -> Any:
        """Run `call` on a thread of its own and await it; cancelling withdraws the call, or interrupts it if it runs."""
        seat = self._seat(plan)
        ticket = self._ticket(options)
        return await in_thread(lambda: self._serve(seat, plan, ticket, target, args, kwargs), cancel=lambda: self._leave(seat, ticket))

    @staticmethod
    def _ticket(options: CallOptions | None) -> Ticket:
        if options is not None and not isinstance(options, CallOptions):
            raise errors.PlanError(f"options must be CallOptions(...), not {type(options).__name__} {options!r}")
        return Ticket(options or DEFAULT_OPTIONS)

    def _serve(self, seat: Seat, plan: EnvPlan, ticket: Ticket, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        refuse_reentry(seat)
        options = ticket.options
        patience = None if options.wait is None else Patience(options.wait)
        message = {"target": target, "args": args, "kwargs": kwargs, "node": _node(options)}
        try:
            if not seat.take(plan, ticket):
                raise _two_plans(seat, plan)
            ticking.tell(ticking.tell_prompt, self._house, seat)
            return ask(seat, ticket, message, patience)
        finally:
            if not ticket.settled:
                abandon(seat, ticket)
            catch_up(self._house, seat)

    def _leave(self, seat: Seat, ticket: Ticket) -> None:
        ticket.left = True  # before the news: a call that is not wanted yet is withdrawn as soon as it is
        seat.post(events.CallWithdrawn(ticket.number))
        seat.post(events.InterruptWanted(ticket.number))

    def interrupt(self, plan: EnvPlan | str) -> bool:
        """Ask the running call of an environment to stop, or those that wait where none runs yet; tell whether there was one.

        From any thread. A call that begins afterwards is never hit.
        """
        seat = self._known(plan)
        return interrupt(seat) if seat else False

    def ask_aside(self, plan: EnvPlan | str, question: str, facts: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
        """Ask a living worker something beside whatever it does: "ping", "refresh_input_types" or "fingerprint".

        None where no worker serves or it did not answer within `COMFY_ENV_SIDE_REPLY_SECONDS`; its side lane then rests
        for `COMFY_ENV_SIDE_REST_SECONDS`. Never starts a worker; an answer is no evidence of health.
        """
        seat = self._known(plan)
        return ask_aside(seat, question, facts or {}) if seat else None

    # ------------------------------------------------------------ workers

    def record(self, plan: EnvPlan | str) -> Record | None:
        """Return the picture of an environment's worker, None while it has none."""
        seat = self._known(plan)
        return picture(seat, seat.clock()) if seat and has_process(seat.env) else None

    def records(self) -> list[Record]:
        """Return the pictures of all workers there are."""
        return [picture(seat, seat.clock()) for seat in self.seats() if has_process(seat.env)]

    def story(self, plan: EnvPlan | str) -> tuple[str, ...]:
        """Return the environment's story, one line per entry, oldest first."""
        seat = self._known(plan)
        return lines_text(seat.env.ledger.story, seat.clock()) if seat else ()

    def release(self, plan: EnvPlan | str, want: Want | None = None) -> Released | None:
        """Ask a worker to give back everything it holds; None where there is no worker.

        Raises `LaneBusy` when the lane was not to be had for `COMFY_ENV_COMMAND_LOCK_SECONDS`, `LaneLost` when the worker ended
        while it was asked.
        """
        if want is not None and not isinstance(want, Want):
            raise errors.PlanError(f"want must be Want(...), not {type(want).__name__} {want!r}")
        seat = self._known(plan)
        return release(seat, want) if seat and has_process(seat.env) else None

    def kill(self, plan: EnvPlan | str, reason: str = "asked") -> bool:
        """End an environment's worker now and wait until it is gone; tell whether there was one."""
        seat = self._known(plan)
        if reason not in _REASONS:
            raise errors.PlanError(f"{reason!r} is not a reason; use one of {', '.join(sorted(_REASONS))}")
        if seat is None:
            return False
        ended: list[int] = []   # told under the same lock: a worker that came in its place a moment before is the one that is ended
        if not seat.post_if(has_process, events.KillWanted(_REASONS[reason]), then=lambda: ended.append(seat.env.row.generation)):
            return False
        limit = seat.env.limits.kill * 2 + seat.env.limits.stack + 1
        seat.wait_for(lambda env: env.row.generation not in ended or env.row.state in _OVER, Patience(limit))
        return True

    def sources_changed(self, plan: EnvPlan | str) -> None:
        """Tell that a pack's sources changed and settled: its worker is replaced at its next idle moment.

        With `COMFY_ENV_SOURCE_POLL_SECONDS`, or `source_poll` in the plan's limits, the pool sees it by itself.
        """
        seat = self._known(plan)
        if seat is not None:
            seat.post(events.SourceChanged(settled=True))

    def stand_ins(self, plan: EnvPlan | str, generation: int, count: int) -> None:
        """Tell how many stand-ins of a worker the host's list of models now has, after it was brought up to date.

        A worker with stand-ins is not reaped; what was kept of an older worker's may go.
        """
        seat = self._known(plan)
        if seat is not None:
            seat.post(events.StandInsChanged(generation, count))
            seat.post(events.StandInsRegistered())

    def remark(self, plan: EnvPlan | str, line: str) -> None:
        """Enter a line in an environment's story."""
        seat = self._known(plan)
        if seat is not None:
            seat.remark(line)

    # ------------------------------------------------------------ environments

    def inspect(self, plan: EnvPlan, probe: bool = True) -> EnvState:
        """Return the state of the plan's environment, from a real probe unless told otherwise."""
        return unmade.inspected(self._relay(plan), plan, probe)

    def plan(self, plan: EnvPlan) -> Changes:
        """Return what building the plan would change."""
        relay = self._relay(plan)
        return relay.plan(plan) if relay.provisions else unmade.changes(self.inspect(plan))

    def build(self, plan: EnvPlan, progress: Callable[[BuildStep], None] | None = None) -> EnvState:
        """Make the plan's environment, blocking; returns at once if it is there. Raises BuildFailed, BuildCancelled.

        A backend that makes no environments has nothing to build: the state says so, and whether the plan can be served.
        """
        relay = self._relay(plan)
        if not relay.provisions:
            return unmade.built(self.inspect(plan))
        before = relay.inspect(plan, False)
        state = _heard(lambda hear: relay.build(plan, hear), progress)
        seat = self._known(plan)
        if seat is not None and (before is None or before.status is not EnvStatus.READY):
            seat.post(events.EnvChanged())
        self._house.observers.tell("env_built", state=state)
        return state

    def remove(self, plan: EnvPlan) -> EnvState:
        """End the environment's worker and remove what was built for the plan."""
        self.kill(plan, "stale_env")
        seat = self._known(plan)
        if seat is not None:
            seat.post(events.EnvChanged())   # its zygote was made of what goes
        relay = self._relay(plan)
        return relay.remove(plan) if relay.provisions else unmade.removed(self.inspect(plan, probe=False))

    # ------------------------------------------------------------ the pool itself

    def seats(self) -> list[Seat]:
        """Return the seats of all environments the pool has heard of."""
        self._check_owner()
        with self._lock:
            return list(self._seats.values())

    def tick(self) -> None:
        """Run one idle sweep now: health, release, reaper, limits. The watcher does this by itself."""
        for seat in self.seats():
            ticking.tick(self._house, seat)
        self._journal.write()

    def close(self) -> None:
        """Stop every worker within one shared deadline and give everything back; nothing spawns afterwards.

        Does nothing in a forked child: the workers are its parent's.
        """
        if os.getpid() != self._owner:
            return
        with self._lock:
            first, self._closed = not self._closed, True
        if not first:
            Patience(self.settings.shutdown + 2 * self.settings.kill + 2).wait(self._gone.wait)
            return
        try:
            self._exit.disarm()
            shut_down(self.seats(), self.settings)
            self._journal.close()
            self._house.close()
        finally:
            self._gone.set()

    def _relay(self, plan: EnvPlan) -> Any:
        return self.registry.backend(_plan(plan).backend, plan)

    def _check_owner(self) -> None:
        """Refuse a forked child, which has the descriptors and none of the threads; asked before any lock is taken."""
        if os.getpid() != self._owner:
            raise errors.PoolClosed(
                f"this pool belongs to process {self._owner}; a forked child cannot use its workers", hint="make a WorkerPool in the child"
            )

    def _known(self, plan: EnvPlan | str) -> Seat | None:
        self._check_owner()
        with self._lock:
            return self._seats.get(plan if isinstance(plan, str) else _plan(plan, "a plan or an environment's key").key)

    def _seat(self, plan: EnvPlan) -> Seat:
        self._check_owner()
        seat = self._seats.get(_plan(plan).key)
        if seat is not None and seat.plan is plan:
            return seat
        relay = self._relay(plan)
        with self._lock:
            if self._closed:
                raise errors.PoolClosed("the pool was closed; nothing spawns after that", env=plan.key, hint="make a new WorkerPool")
            seat = self._seats.get(plan.key)
            if seat is None:
                seat = self._seats[plan.key] = self._new_seat(plan, relay)
        if seat.plan != plan and not seat.adopt(plan, relay, self.settings.limited(plan.limits)):
            raise _two_plans(seat, plan)
        return seat

    def _new_seat(self, plan: EnvPlan, relay: Any) -> Seat:
        env = new_env(plan.key, self.settings.limited(plan.limits), killable="killable" in relay.capabilities)
        return Seat(plan, env, relay, self._house.now, self._carrier, self.registry)


def _heard(build: Callable[[Callable[[BuildStep], None]], EnvState], progress: Callable[[BuildStep], None] | None) -> EnvState:
    """Build, telling the caller's hook; what the hook raises is raised as it is and is not the backend's."""
    raised: list[BaseException] = []

    def hear(step: BuildStep) -> None:
        try:
            if progress is not None:
                progress(step)
        except BaseException as error:  # told apart below
            raised.append(error)
            raise

    try:
        return build(hear)
    except errors.BackendError as broken:
        if raised and broken.__cause__ is raised[-1]:
            raise raised[-1] from None
        raise


def _plan(given: EnvPlan, wanted: str = "a plan") -> EnvPlan:
    if not isinstance(given, EnvPlan):
        how = "make one with EnvPlan(...), EnvPlan.existing(...) or EnvPlan.from_pack(...)"
        raise errors.PlanError(f"{wanted} is wanted, not {type(given).__name__} {given!r}", hint=how)
    return given


def _two_plans(seat: Seat, plan: EnvPlan) -> errors.PlanError:
    return errors.PlanError(
        f"two different plans are called {plan.key!r}, and a call of the other one runs or waits",
        env=plan.key,
        hint=f"let it end first, or give one of them another key ({seat.plan.source or 'the first'}; {plan.source or 'the second'})",
    )


def _checked(settings: Settings) -> Settings:
    if not isinstance(settings, Settings):
        raise errors.PlanError(f"settings must be Settings(...), not {type(settings).__name__} {settings!r}")
    return settings.checked()


def _node(options: CallOptions) -> dict[str, str] | None:
    node = options.node
    return None if node is None else {"node_id": node.node_id, "prompt_id": node.prompt_id, "class_type": node.class_type}

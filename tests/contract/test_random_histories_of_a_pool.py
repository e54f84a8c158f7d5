"""Long random histories of a real pool over a scripted worker and a clock the test moves; every step keeps every invariant.

The machine's steps are seen under the environment's own lock, in their true order; callers, performers and the watcher
are real threads.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from comfy_env import CallOptions, errors
from comfy_env.hooks import Registry
from comfy_env.lifecycle import events
from comfy_env.lifecycle.invariants import violations
from comfy_env.lifecycle.memory import Memory, Moment
from comfy_env.lifecycle.record import State
from comfy_env.pool import WorkerPool
from comfy_env.pool import seat as seats
from comfy_env.settings import Settings
from comfy_env.testing.audit import wait_until
from comfy_env.testing.clock import MovableClock
from comfy_env.testing.fakes import FakeMemory, FakePrompt, FakeShelf
from comfy_env.testing.lifecycle_faults import FAULTS
from comfy_env.testing.lifecycle_world import old_news
from comfy_env.testing.scripted import HOLD, Dies, ScriptedBackend
from comfy_env.testing.stage import LIMIT
from comfy_env.values import EnvPlan, ExitStatus, Killed
from comfy_env.worker.wire.kinds import Kind

NUMBERS = itertools.count(1)
VERBS = ("spawn", "transport", "verify", "release")
MOVING = {State.SPAWNING: ("spawn",), State.JOINING: ("transport",), State.PROVING: ("verify",), State.RELEASING: ("release",)}
LIMITS = dict(
    call_silence=20.0, idle_release=70.0, idle_reap=100.0, crash_limit=3, crash_window=60.0, park=30.0, stack=0.0, kill=0.2, shutdown=1.0,
    interrupt_grace=5.0, ping_idle=60.0, command_lock=0.05,
)


class Witness:
    """Stands in for the machine's `step`: lets it decide, and holds each decision about its environment against the invariants.

    Of another one it is a thread of the history before that comes late: nobody's rules are broken by that.
    """

    decide = staticmethod(seats.step)

    def __init__(self, key):
        self.key = key
        self.memory = Memory()
        self.broken: list[str] = []
        self.steps = 0

    def __call__(self, env, event, now):
        after, effects = self.decide(env, event, now)
        if env.key != self.key:
            return after, effects
        moment = Moment(self.memory, env, event, now, after, effects)
        self.broken += [f"{name}: {wrong} ({event})" for name, wrong in violations(moment)]
        self.memory = moment.memory.after(moment)
        self.steps += 1
        return after, effects


def dies(code):
    raise Dies(ExitStatus(code=code))


def fails():
    raise ValueError("no such cat")


class Pools(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        place = Path(self.folder.name)
        self.plan = EnvPlan(key=f"random-{next(NUMBERS)}", backend="scripted", device="card")
        self.witness, self.step = Witness(self.plan.key), seats.step
        seats.step = self.witness
        self.clock, self.prompt, self.memory, self.shelf = MovableClock(), FakePrompt(), FakeMemory(), FakeShelf()
        self.backend = ScriptedBackend({"m:double": lambda n: 2 * n, "m:hold": lambda: HOLD, "m:die": dies, "m:fail": fails})
        self.registry = Registry(find=lambda group: ())
        self.registry.register("scripted", self.backend)
        self.pool = WorkerPool(
            Settings(runtime_folder=place / "run", log_folder=place / "logs", **LIMITS), registry=self.registry, clock=self.clock,
            shelf=self.shelf, prompt=self.prompt, memory=self.memory,
        )
        self.threads: list[threading.Thread] = []
        self.calls: list[tuple[str, int, Future]] = []
        self.closed = self.wedged = False

    # ---- what a test may look at

    @property
    def seat(self):
        found = self.pool.seats()
        return found[0] if found else None

    def rests(self):
        """Tell whether nothing goes on by itself any more: what moves waits at a closed gate."""
        seat = self.seat
        if seat is None:
            return True
        row, state = seat.env.row, seat.env.row.state
        if state in MOVING:
            return any(verb in self.backend.gates for verb in MOVING[state])
        if state in (State.PINGING, State.CLOSING):
            return False
        return row.activity.offered is None and (row.activity.running is None or bool(self.backend.open_calls))

    def settle(self):
        deadline = time.monotonic() + 0.3
        while not self.rests() and time.monotonic() < deadline:
            time.sleep(0.001)

    def ask(self, what, number=0, **options):
        args = {"m:double": (number,), "m:die": (number % 3,)}.get(what, ())
        future = self.start(lambda: self.pool.call(self.plan, what, *args, options=CallOptions(**options)))
        self.calls.append((what, number, future))
        self.settle()

    def start(self, job):
        """Run a job on a thread of its own, one that keeps no interpreter from ending, and return its future."""
        future: Future = Future()

        def run():
            try:
                future.set_result(job())
            except BaseException as error:  # handed to whoever looks at the future
                future.set_exception(error)

        self.threads = [thread for thread in self.threads if thread.is_alive()]
        self.threads.append(threading.Thread(target=run, name="asker", daemon=True))
        self.threads[-1].start()
        return future

    # ---- callers

    @rule(what=st.sampled_from(["m:double", "m:double", "m:hold", "m:die", "m:fail"]), number=st.integers(0, 99))
    def somebody_calls(self, what, number):
        if sum(not future.done() for _, _, future in self.calls) < 12:
            self.ask(what, number)

    @rule(numbers=st.lists(st.integers(0, 99), min_size=1, max_size=5))
    def all_goes_well(self, numbers):
        self.what_fails_is_mended()
        self.open_gates()
        while self.backend.open_calls:
            self.backend.open_calls.pop().reply("held")
        if self.seat is not None and self.seat.env.row.state is State.PARKED:
            self.seat.post(events.Unpark())
        for number in numbers:
            self.ask("m:double", number)

    @rule(number=st.integers(0, 99))
    def somebody_calls_without_patience(self, number):
        self.ask("m:double", number, wait=0.0)

    @rule()
    def somebody_interrupts(self):
        self.pool.interrupt(self.plan)
        self.settle()

    @rule()
    def somebody_releases(self):
        try:
            self.pool.release(self.plan)
        except errors.ComfyEnvError as refusal:
            assert not isinstance(refusal, errors.CallFailed), refusal

    @rule()
    def somebody_kills(self):
        self.start(lambda: self.pool.kill(self.plan))
        self.settle()

    # ---- the worker

    @rule(which=st.integers(0, 9), twice=st.booleans())
    def a_call_ends(self, which, twice):
        if self.backend.open_calls:
            call = self.backend.open_calls.pop(which % len(self.backend.open_calls))
            for _ in range(1 + twice):
                call.reply("held")
        self.settle()

    @rule()
    def a_call_reports(self):
        for call in self.backend.open_calls:
            call.report(1, 2)

    @rule(deaf=st.booleans(), mute=st.booleans())
    def it_hears_or_not(self, deaf, mute):
        self.backend.deaf, self.backend.mute = deaf, mute

    @rule(held=st.integers(0, 9))
    def it_holds_memory(self, held):
        self.backend.held = held

    @rule(status=st.sampled_from([ExitStatus(signal=9), ExitStatus(signal=11), ExitStatus(code=0), ExitStatus(code=3)]))
    def it_dies(self, status):
        if self.backend.processes:
            self.backend.process.end(status)
            self.backend.open_calls.clear()
        self.settle()

    @rule()
    def its_lane_sends_what_nobody_asked_for(self):
        seat = self.seat
        if seat is not None and seat.worker is not None and seat.worker.lanes is not None:
            sent = [frame for frame in seat.worker.lanes.main.sent if frame.kind == Kind.CALL]
            if sent:
                wrong = self.backend._frame(Kind.REPLY, sent[0], {"value": "wrong", "held": 0})
                seat.worker.lanes.main.put(wrong._replace(request=sent[0].request - 1), wrong._replace(generation=0))

    # ---- the backend

    @rule(verb=st.sampled_from(VERBS))
    def a_verb_begins_to_hang(self, verb):
        self.backend.gates.setdefault(verb, threading.Event())

    @rule()
    def what_hangs_goes_on(self):
        self.open_gates()
        self.settle()

    @rule(verb=st.sampled_from(VERBS), fault=st.sampled_from([None, "a word", OSError("no"), errors.SpawnFailed("no")]))
    def a_verb_begins_to_fail(self, verb, fault):
        self.backend.faults[verb] = fault

    @rule()
    def it_cannot_be_killed(self):
        self.backend.faults["kill"] = Killed(note="in the kernel")
        self.wedged = True

    @rule()
    def what_fails_is_mended(self):
        self.backend.faults.clear()
        if self.backend.processes and self.seat.env.row.state is State.WEDGED:
            self.backend.process.end(ExitStatus(signal=9))
        self.settle()

    # ---- time and host

    @rule(seconds=st.sampled_from([0.5, 3, 6, 11, 21, 31, 61, 71, 101, 700]))
    def time_passes(self, seconds):
        self.clock.advance(seconds)
        self.pool.tick()
        self.settle()

    @rule(prompt=st.sampled_from(["", "p", "q"]), tight=st.booleans())
    def the_host_goes_on(self, prompt, tight):
        self.prompt.id = prompt
        self.memory.short = {"card"} if tight else set()
        self.pool.tick()
        self.settle()

    @rule(event=st.sampled_from([
        events.SourceChanged(), events.SourceChanged(settled=True), events.SourceChanged("line 3"), events.EnvChanged(), events.Unpark(),
        events.StandInsRegistered(),
    ]))
    def something_changes(self, event):
        if self.seat is not None:
            self.seat.post(event)
        self.settle()

    @rule(which=st.integers(0, 99))
    def news_of_the_former_worker_comes_late(self, which):
        late = old_news(self.seat.env.row.generation - 1) if self.seat is not None else ()
        if late:
            self.seat.post(late[which % len(late)])
        self.settle()

    @rule(stand_ins=st.integers(0, 2))
    def stand_ins_come_and_go(self, stand_ins):
        if self.seat is not None:
            self.seat.post(events.StandInsChanged(self.seat.env.row.generation, stand_ins))
        self.settle()

    @rule(often=st.integers(0, 30))
    def the_pool_may_be_closed(self, often):
        if often == 0:
            self.open_gates()
            self.pool.close()
            self.closed = True

    # ---- what must hold

    @invariant()
    def every_step_kept_every_rule(self):
        assert not self.witness.broken, "\n".join([*self.witness.broken, *self.pool.story(self.plan)])

    @invariant()
    def every_answer_is_the_callers_own(self):
        for what, number, future in self.calls:
            if future.done():
                check(what, number, future)
        self.calls = [call for call in self.calls if not call[2].done()]

    def open_gates(self):
        gates, self.backend.gates = self.backend.gates, {}
        for gate in gates.values():
            gate.set()

    def teardown(self):
        try:
            self.end()
        finally:
            seats.step = self.step
            self.folder.cleanup()
        assert not self.witness.broken, "\n".join(self.witness.broken)

    def end(self):
        self.backend.faults.clear()
        self.open_gates()
        for process in self.backend.processes:
            if self.seat.env.row.state is State.WEDGED:
                process.end(ExitStatus(signal=9))
        if self.witness.broken:  # whoever waits in a world without rules may wait for ever
            self.pool.close()
            return
        wait_until(lambda: self.seat is None or self.seat.env.row.state is not State.WEDGED or self.closed, LIMIT)
        while self.backend.open_calls:
            self.backend.open_calls.pop().reply("held")
        self.pool.close()
        for what, number, future in self.calls:
            future.exception(LIMIT)
            check(what, number, future)
        for thread in self.threads:
            thread.join(LIMIT)
            assert not thread.is_alive()
        if self.seat is not None:
            assert not self.seat.tickets, "a ticket was never answered"
        assert self.witness.memory.asked == self.witness.memory.settled
        if self.wedged:  # of a worker that would not die the pool keeps what it may still hear of it by
            for process in self.backend.processes:
                process.close()
                process.launch.endpoint.close()


def check(what, number, future):
    """Hold one caller's end against what it asked for."""
    error = future.exception()
    if error is None:
        assert future.result() == {"m:double": 2 * number, "m:hold": "held"}[what]
    else:
        assert isinstance(error, errors.ComfyEnvError), repr(error)
        assert what == "m:fail" or not isinstance(error, errors.NodeRaised), repr(error)


Pools.TestCase.settings = settings(
    max_examples=50, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
TestPools = pytest.mark.deadline(400)(pytest.mark.slow(Pools.TestCase))


PLANTED = ("the reaper holds no lease", "old news is heard", "a closed pool spawns", "stand-ins are dropped with their worker")


@pytest.mark.slow
@pytest.mark.shares("fd", "thread")  # a pool that breaks its word leaves things behind
@pytest.mark.parametrize("name", PLANTED)
def test_a_fault_planted_under_a_real_pool_is_found(name, monkeypatch):
    """A check of the check: the same machine over a table that breaks its word."""
    fault = next(fault for fault in FAULTS if fault.name == name)
    monkeypatch.setattr(Witness, "decide", staticmethod(fault.decide))
    found = settings(
        max_examples=400, stateful_step_count=50, deadline=None, database=None, phases=[Phase.generate], print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises((AssertionError, Flaky)):
        run_state_machine_as_test(Pools, settings=found)

"""Long random histories with real times: the world goes on, time passes, and anything may be posted at any moment."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from comfy_env.lifecycle import events as e
from comfy_env.lifecycle.deaths import Reason
from comfy_env.lifecycle.invariants import violations
from comfy_env.lifecycle.machine import new_env, next_due, step
from comfy_env.lifecycle.memory import Memory, Moment
from comfy_env.lifecycle.story import MOST_IMPORTANT, MOST_ORDINARY, lines_text
from comfy_env.testing.lifecycle_world import LIMITS, Scenario, World, moves, obliged, old_news
from comfy_env.values import Want

OPEN = Scenario(
    "all doors open", calls=10**9, deaths=10**9, births_fail=True, lanes_break=True, askers_leave=True, alive=True, wont_die=True,
    time=False,
)
OUTSIDE = st.one_of(
    st.builds(e.InterruptWanted, st.one_of(st.none(), st.integers(1, 30))),
    st.builds(e.ReleaseWanted, st.builds(Want, st.one_of(st.none(), st.integers(1, 9)))),
    st.builds(e.KillWanted, st.sampled_from([Reason.ASKED, Reason.STALE_ENV])),
    st.builds(e.PromptChanged, st.sampled_from(["", "p", "q"])),
    st.builds(e.CardTight, st.sampled_from(["card", "other"]), st.booleans()),
    st.builds(e.SourceChanged, st.sampled_from(["", "line 1"])),
    st.sampled_from([e.Unpark(), e.EnvChanged(), e.ZygoteUp(), e.ZygoteLost(), e.StandInsRegistered()]),
)
FACTS = st.one_of(
    st.tuples(st.just(e.StandInsChanged), st.integers(0, 2)),
    st.tuples(st.just(e.HostHoldsChanged), st.integers(0, 1), st.integers(0, 1)),
    st.tuples(st.just(e.HeldGrew), st.integers(0, 9)),
)


class Histories(RuleBasedStateMachine):
    @initialize(killable=st.booleans(), limit=st.sampled_from([2, 3, 9]), stack=st.sampled_from([0.0, 0.2]))
    def begin(self, killable, limit, stack):
        self.scenario = replace(OPEN, killable=killable)
        self.env = new_env("random", replace(LIMITS, crash_limit=limit, stack=stack), killable)
        self.world, self.memory, self.now = World(), Memory(), 0.0

    def post(self, event, world=None):
        before = self.env
        self.env, wanted = step(before, event, self.now)
        moment = Moment(self.memory, before, event, self.now, self.env, wanted)
        broken = list(violations(moment))
        assert not broken, f"{broken}\n" + "\n".join(lines_text(self.env.ledger.story, self.now))
        self.memory = self.memory.after(moment)
        self.world = obliged(self.world if world is None else world, self.env, event, wanted)

    @rule(choices=st.lists(st.integers(0, 10**6), min_size=1, max_size=6))
    def the_world_goes_on(self, choices):
        for choice in choices:
            nexts = list(moves(self.scenario, self.env, self.world))
            move = nexts[choice % len(nexts)]
            self.post(move.event, move.world)

    @rule(steps=st.integers(1, 12), calls=st.integers(0, 3))
    def all_goes_well(self, steps, calls):
        calm = replace(self.scenario, calls=self.world.asked + calls, deaths=0, births_fail=False, askers_leave=False, wont_die=False)
        for _ in range(steps):
            move = next(moves(calm, self.env, self.world), None)
            if move is None:
                self.post(e.Tick())  # a limit is due and nothing else is under way
            else:
                self.post(move.event, move.world)

    @rule(seconds=st.floats(0, 120))
    def time_passes(self, seconds):
        self.now += seconds
        self.post(e.Tick())

    @rule()
    def a_limit_comes(self):
        due = next_due(self.env)
        if due is not None:
            self.now = max(self.now, due)
            self.post(e.Tick())

    @rule(event=OUTSIDE)
    def somebody_wants_something(self, event):
        self.post(event)

    @rule(facts=FACTS)
    def the_host_tells_something(self, facts):
        kind, *values = facts
        self.post(kind(self.env.row.generation, *values))

    @rule(back=st.integers(1, 3), which=st.integers(0, 100))
    def old_news_comes(self, back, which):
        stale = old_news(self.env.row.generation - back)
        if stale:
            self.post(stale[which % len(stale)])

    @rule(often=st.integers(0, 19))
    def the_pool_may_be_closed(self, often):
        if often == 0:
            self.post(e.ShutdownWanted())

    @invariant()
    def the_story_is_bounded(self):
        assert len(self.env.ledger.story.lines) <= MOST_IMPORTANT + MOST_ORDINARY


Histories.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestHistories = Histories.TestCase

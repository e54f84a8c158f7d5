"""Every history the scenarios allow keeps every rule, and every planted fault is found with its shortest trace."""

from __future__ import annotations

import pytest

from comfy_env.lifecycle import effects, events, invariants
from comfy_env.lifecycle.contract import DUTIES
from comfy_env.lifecycle.machine import TABLE, new_env
from comfy_env.testing import lifecycle_docs
from comfy_env.testing.explore import explore
from comfy_env.testing.lifecycle_faults import FAULTS, Fault, hunt
from comfy_env.testing.lifecycle_scenarios import SCENARIOS
from comfy_env.testing.lifecycle_world import ANSWERS, OBLIGING, Scenario, World


def test_every_reachable_history_keeps_every_rule(explored):
    broken = [str(exploration.violation) for exploration in explored if exploration.violation]
    assert not broken, "\n".join(broken)
    assert sum(exploration.states for exploration in explored) > 30_000


def test_every_cell_of_the_table_is_reached(explored):
    written = {(event, state) for event, cells in TABLE.items() for state in cells}
    reached = set().union(*(exploration.cells for exploration in explored))
    assert {(event.__name__, state.name) for event, state in written - reached} == set()


def test_every_event_has_a_row_in_the_table_and_every_effect_a_duty():
    def leaves(module, root):
        return {kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, root)} - {root, events.News}

    assert set(TABLE) == leaves(events, events.Event)
    assert set(DUTIES) == leaves(effects, effects.Effect)


def test_the_world_answers_every_effect_that_must_be_answered():
    assert set(ANSWERS) == OBLIGING


@pytest.mark.parametrize("kind", sorted(ANSWERS, key=lambda kind: kind.__name__))
def test_an_effect_is_answered_by_the_events_its_duty_names(kind):
    scenario = Scenario("all doors open", births_fail=True, alive=True, lanes_break=True, wont_die=True)
    facts = {"Dispatch": (1,), "Release": (None,), "Kill": (None, False), "Goodbye": (1.0,)}.get(kind.__name__, ())
    effect = kind(1, *facts)
    seen = {type(move.event) for move in ANSWERS[kind](scenario, new_env("e"), World(pending=frozenset({effect})), effect)}
    assert seen and seen <= set(DUTIES[kind].answers)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Fault):
    violation = hunt(fault)
    assert violation is not None
    assert violation.rule == fault.rule
    print(violation)


def test_every_rule_can_be_broken_by_a_fault():
    rules = {rule.__name__ for rule in invariants.INVARIANTS} | {"somebody_always_answers"}
    assert {fault.rule for fault in FAULTS} == rules


def test_a_trace_is_the_shortest_and_tells_each_step():
    fault = next(fault for fault in FAULTS if fault.name == "a closed pool spawns")
    violation = hunt(fault)
    assert violation is not None
    assert [line.split(";")[0] for line in violation.trace] == ["shutdown wanted", "call wanted (ticket 1)"]
    assert "a closed pool spawns" not in str(violation) and "closed_is_closed" in str(violation)


def test_exploring_twice_covers_the_same():
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == "others wait for a worker that will not die")
    one, other = explore(scenario), explore(scenario)
    assert (one.states, one.transitions, one.edges) == (other.states, other.transitions, other.edges)


def test_the_page_about_the_lifecycle_is_printed_from_the_code(explored, request):
    page = request.config.rootpath / lifecycle_docs.PAGE
    assert page.read_text(encoding="utf-8") == lifecycle_docs.page(explored), "run: python -m comfy_env.testing.lifecycle_docs"

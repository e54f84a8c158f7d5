"""The restart machine keeps its rules in every history of its scripted world, and the rules find planted faults."""

from __future__ import annotations

import math

import pytest

from comfy_env.orchestrator import effects as f
from comfy_env.orchestrator import events as e
from comfy_env.orchestrator.restart import Phase, Restart, Rules
from comfy_env.orchestrator.state import TABLE, next_due, step
from comfy_env.orchestrator.target import Kind, Target

from .exploring import Exploration, explore
from .restart_faults import FAULTS, Fault, scenario_of
from .restart_rules import RULES
from .restart_world import ASKED, SCENARIOS, TREE, TREE_2, VERSION, Scenario


@pytest.fixture(scope="module")
def explored() -> dict[str, Exploration]:
    return {scenario.name: explore(scenario) for scenario in SCENARIOS}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_history_keeps_the_rules(scenario: Scenario, explored, record_property):
    found = explored[scenario.name]
    record_property("states", found.states)
    record_property("transitions", found.transitions)
    assert found.broken is None, str(found)


def test_every_cell_of_the_table_is_visited(explored):
    visited = set().union(*(found.cells for found in explored.values()))
    assert {(kind, phase) for kind, cells in TABLE.items() for phase in cells} - visited == set()


def test_every_phase_is_reached(explored):
    reached = {after for found in explored.values() for _, _, after in found.edges}
    assert reached == set(Phase)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Fault):
    found = explore(scenario_of(fault), fault.decide)
    assert found.broken is not None and found.broken[0] == fault.rule, str(found)
    assert found.trace
    print(fault.name, found)


def test_every_rule_can_be_broken_by_a_fault():
    assert {fault.rule for fault in FAULTS} == {rule.__name__ for rule in RULES}


# ---- single sentences of the contract, told as histories


def along(*events: e.Event, restart: Restart | None = None, now: float = 0.0) -> tuple[Restart, list[f.Effect]]:
    restart, done = restart or Restart(), []
    for event in events:
        restart, effects = step(restart, event, now)
        done += effects
    return restart, done


WAY = (
    e.Found(TREE),
    e.GateOpened(),
    e.Rechecked(1, True),
    e.Spawned(1),
    e.Hello(1),
    e.Listening(1),
    e.PoolClosed(1),
    e.Yielded(1),
    e.Serving(1),
)


def test_the_way_to_a_successor_asks_for_these_things_in_this_order():
    restart, done = along(*WAY, e.Drained(1), e.Confirmed(1))
    assert [type(effect).__name__ for effect in done] == [
        "TellPending",
        "RaiseFence",
        "TellNow",
        "Spawn",
        "SendListener",
        "ClosePool",
        "Yield",
        "SendCommit",
        "Drain",
        "Leave",
    ]
    assert restart.phase is Phase.EXIT and done[-1] == f.Leave(0, True)


def test_several_reasons_are_one_restart_and_the_newest_tree_is_its_target():
    restart, done = along(e.Asked(ASKED), e.Found(TREE), e.Found(TREE_2))
    assert restart.target == TREE_2 and restart.by_hand
    assert [effect.target for effect in done] == [ASKED, TREE, TREE_2]


def test_a_build_that_came_meanwhile_is_armed_when_the_one_before_failed():
    restart, done = along(*WAY[:4], e.Found(TREE_2), e.Ended(1, "died"), e.Killed(1))
    assert restart.phase is Phase.ARMED and restart.target == TREE_2
    assert any(isinstance(effect, f.TellFailed) for effect in done)


def test_a_tree_that_failed_is_left_alone_until_it_changes_and_somebodys_wish_is_heard():
    restart, _ = along(*WAY[:4], e.Ended(1, "died"), e.Killed(1))
    assert along(e.Found(TREE), restart=restart)[0].phase is Phase.COOLDOWN
    assert along(e.Found(TREE_2), restart=restart)[0].phase is Phase.ARMED
    assert along(e.Asked(ASKED), restart=restart)[0].phase is Phase.ARMED


@pytest.mark.parametrize(("failures", "minutes"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (12, 60)])
def test_a_version_that_failed_rests_longer_each_time(failures: int, minutes: int):
    restart, now = Restart(Rules(updates=60)), 0.0
    for attempt in range(1, failures + 1):
        failing = (e.Rechecked(attempt, True), e.ApplyFailed(attempt, "no"), e.PutBack(attempt, True))
        restart, _ = along(e.Found(VERSION), e.GateOpened(), *failing, restart=restart, now=now)
        begun, now = now, next_due(restart)
        restart, _ = step(restart, e.Tick(), now)
    assert now - begun == minutes * 60


def test_the_fourth_update_within_an_hour_waits_for_its_turn():
    restart = Restart(updated=(0.0, 600.0, 1200.0))
    restart, done = along(e.Found(VERSION), restart=restart, now=1800.0)
    assert restart.phase is Phase.STAGED and next_due(restart) == 3600.0
    assert along(e.Tick(), restart=restart, now=3600.0)[0].phase is Phase.ARMED


def test_dev_restarts_are_not_capped():
    restart = Restart(updated=(0.0, 1.0, 2.0))
    assert along(e.Found(TREE), restart=restart, now=3.0)[0].phase is Phase.ARMED


def test_a_goodbye_of_the_successor_ends_this_process_with_its_status():
    restart, done = along(*WAY, e.Drained(1), e.Goodbye(1, 75))
    assert done[-1] == f.Leave(75, True)


def test_between_word_and_serving_the_replacement_is_ended_before_the_store_is_taken_back():
    _, done = along(*WAY[:8], e.Ended(1, "died"), e.Killed(1), e.TakenBack(1))
    names = [type(effect).__name__ for effect in done]
    assert names[names.index("SendCommit") :] == ["SendCommit", "Kill", "TakeBack", "LiftFence", "TellFailed"]


def test_what_the_replacement_died_of_reaches_the_clients():
    _, done = along(*WAY[:4], e.Ended(1, "SyntaxError in store.py"), e.Killed(1))
    assert done[-1] == f.TellFailed(TREE, "SyntaxError in store.py", True)


def test_files_that_could_not_be_put_back_are_told():
    _, done = along(e.Found(VERSION), e.GateOpened(), e.Rechecked(1, True), e.ApplyFailed(1, "disk full"), e.PutBack(1, False))
    assert done[-1] == f.TellFailed(VERSION, "disk full", False)


def test_a_failed_tree_waits_without_an_end():
    restart, _ = along(*WAY[:4], e.Ended(1, "died"), e.Killed(1))
    assert next_due(restart) is None and restart.failures[0].until == math.inf


def test_an_installation_goes_through_applying_and_keeps_the_fence_one_minute_at_most():
    restart, done = along(e.Found(VERSION), e.GateOpened(), e.Rechecked(1, True), now=100.0)
    assert restart.phase is Phase.APPLYING and restart.due == 160.0
    restart, _ = along(e.Applied(1), restart=restart, now=150.0)
    restart, _ = along(e.Spawned(1), restart=restart, now=151.0)
    assert restart.due == 160.0


def test_a_restart_by_hand_of_a_staged_version_installs_it():
    restart, _ = along(e.Found(VERSION), e.Asked(Target(Kind.ASKED, "x", "x")), restart=Restart(Rules(autorestart=False)))
    assert restart.phase is Phase.ARMED and restart.target == VERSION and restart.by_hand

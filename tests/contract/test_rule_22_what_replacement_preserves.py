"""Rule 22: stand-ins of a worker that is replaced are kept alive until others are registered: the host may be walking its list."""

import pytest

from comfy_env import errors
from comfy_env.lifecycle import events
from comfy_env.testing.stage import LIMIT, needs


def test_stand_ins_go_to_quarantine_when_their_worker_is_ended_and_stay_until_others_are_registered(stage):
    stage.serve()
    stage.seat.post(events.StandInsChanged(1, 2))
    stage.pool.kill(stage.plan)
    assert stage.shelf.told == [("quarantine", stage.plan.key, 1)]
    assert stage.call("add", 1, 1) == 2
    assert stage.shelf.told == [("quarantine", stage.plan.key, 1)], "the next worker's birth drops nothing"
    stage.seat.post(events.StandInsRegistered())
    assert stage.shelf.told[1:] == [("drop", stage.plan.key)]
    stage.seat.post(events.StandInsRegistered())
    assert len(stage.shelf.told) == 2


@needs("survives_crash")
def test_a_crash_quarantines_too(stage):
    stage.serve()
    stage.seat.post(events.StandInsChanged(1, 1))
    with pytest.raises(errors.WorkerCrashed):
        stage.call("die", "kill")
    assert stage.shelf.told == [("quarantine", stage.plan.key, 1)]


def test_a_worker_without_stand_ins_leaves_the_shelf_alone(stage):
    stage.serve()
    stage.pool.kill(stage.plan)
    assert stage.call("add", 1, 1) == 2
    assert stage.shelf.told == []


def test_the_quarantine_is_told_before_the_worker_is_ended(stage):
    """What stands for it must answer as offloaded before its memory goes."""
    order = []
    stage.serve()
    stage.seat.post(events.StandInsChanged(1, 1))
    stage.shelf.quarantine = lambda env, generation: order.append("quarantine")
    stage.spy.before["kill"] = lambda process: order.append("kill")
    stage.pool.kill(stage.plan)
    assert order == ["quarantine", "kill"]


def test_the_replacement_may_come_from_inside_the_hosts_own_walk_over_its_list(stage):
    """The host frees memory model by model; one entry's release kills its worker: the list is the same afterwards."""
    stage.serve()
    stage.seat.post(events.StandInsChanged(1, 3))
    models = ["a stand-in", "another", "a third"]
    walked = []
    stage.shelf.drop_quarantine = lambda env: models.clear()   # as the host's shelf does, when it is told that it may
    for model in models:
        walked.append(model)
        if len(walked) == 1:
            assert stage.on_a_thread(stage.pool.kill, stage.plan).result(LIMIT)
        assert stage.call("add", 1, 1) == 2, "the next worker serves while the walk goes on"
    assert walked == models == ["a stand-in", "another", "a third"]
    assert stage.shelf.told == [("quarantine", stage.plan.key, 1)]
    stage.seat.post(events.StandInsRegistered())
    assert models == [], "and what was kept may go when others are registered"

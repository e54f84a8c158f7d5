"""Rule 14: a worker is a cache of its own code: it is replaced at its next idle moment once a sound change has settled."""

from dataclasses import replace

import pytest

from comfy_env import EnvPlan, WorkerPool
from comfy_env.lifecycle import events
from comfy_env.testing.stage import LIMIT
from tests.contract.worlds import REAL, over

POLL = 0.1


def test_a_change_of_the_sources_replaces_an_idle_worker_before_its_next_call(stage, eventually):
    stage.serve()
    stage.pool.sources_changed(stage.plan)
    assert stage.call("add", 1, 1) == 2
    assert stage.record.generation == 2
    assert any("the pack's sources changed" in line for line in stage.pool.story(stage.plan))


def test_a_busy_worker_is_replaced_when_its_call_has_ended(stage):
    held = stage.held()
    stage.pool.sources_changed(stage.plan)
    assert stage.record.generation == 1 and stage.state() == "busy"
    waiting = stage.start("add", 1)
    stage.go()
    assert held.result(LIMIT) == "gone", "the call that ran is not disturbed"
    assert waiting.result(LIMIT) == 1
    assert stage.record.generation == 2


def test_a_change_that_has_not_settled_replaces_nothing_yet(timed):
    timed.serve()
    timed.seat.post(events.SourceChanged())
    timed.advance(timed.pool.settings.tick - 1)
    timed.seat.post(events.SourceChanged())
    timed.advance(timed.pool.settings.tick - 1)
    assert timed.call("add", 1, 1) == 2 and timed.record.generation == 1
    timed.advance(2)
    assert timed.call("add", 1, 1) == 2 and timed.record.generation == 2


def test_sources_with_a_fault_replace_nothing_and_say_so(timed):
    timed.serve()
    timed.seat.post(events.SourceChanged())
    timed.seat.post(events.SourceChanged("nodes.py:3: invalid syntax"))
    timed.advance(1000)
    assert timed.record.generation == 1
    assert any("nodes.py:3: invalid syntax" in line for line in timed.pool.story(timed.plan))


def test_a_change_in_the_middle_of_a_prompt_waits_for_its_end(timed):
    """Later nodes of the prompt may want objects that stayed in the worker."""
    timed.prompt.id = "prompt-1"
    timed.serve()
    timed.pool.sources_changed(timed.plan)
    assert timed.call("add", 1, 1) == 2 and timed.record.generation == 1
    timed.prompt.id = "prompt-2"
    assert timed.call("add", 1, 1) == 2 and timed.record.generation == 2


def test_a_fault_in_the_sources_does_not_hide_that_the_environment_changed(timed):
    timed.serve()
    timed.seat.post(events.EnvChanged())
    timed.seat.post(events.SourceChanged("nodes.py:3: invalid syntax"))
    timed.advance(timed.pool.settings.tick + 1)
    assert timed.call("add", 1, 1) == 2 and timed.record.generation == 2


@over("scripted")
def test_a_stale_worker_with_stand_ins_waits_for_them_and_says_so(timed, eventually):
    timed.serve()
    timed.seat.post(events.StandInsChanged(1, 2))
    timed.pool.sources_changed(timed.plan)
    timed.advance(1)
    assert timed.call("add", 1, 1) == 2 and timed.record.generation == 1
    timed.advance(timed.pool.settings.tick)
    assert any("replaced when the host lets go of its 2 stand-ins" in line for line in timed.pool.story(timed.plan))
    timed.seat.post(events.StandInsChanged(1, 0))
    assert timed.call("add", 1, 1) == 2 and timed.record.generation == 2


# ---------------------------------------------------------------- seen by the pool itself

@pytest.fixture
def pack(stage):
    """A pack whose sources the pool looks at, and how its code is changed."""
    root = stage.folder / "pack"
    root.mkdir()

    def write(text, name="pack_of_the_test.py"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)

    write("def version():\n    return 1\n")
    stage.plan = replace(stage.plan, import_roots=(root, *stage.plan.import_roots), limits={"source_poll": POLL})
    return write


@over(*REAL)
def test_an_edit_of_a_pack_is_served_by_a_new_worker_without_a_restart(stage, pack, eventually):
    assert stage.run("pack_of_the_test:version") == 1
    pack("def version():\n    return 22\n")
    eventually(lambda: stage.run("pack_of_the_test:version") == 22)
    assert stage.record.generation == 2


@over(*REAL)
def test_an_edit_with_a_syntax_error_replaces_nothing_until_it_is_mended(stage, pack, eventually):
    assert stage.run("pack_of_the_test:version") == 1
    pack("def version(:\n    return 22\n")
    eventually(lambda: any("are not used: " in line and "pack_of_the_test.py:1" in line for line in stage.pool.story(stage.plan)))
    assert stage.run("pack_of_the_test:version") == 1 and stage.record.generation == 1
    pack("def version():\n    return 333\n")
    eventually(lambda: stage.run("pack_of_the_test:version") == 333)
    assert stage.record.generation == 2


@over("venv")
def test_what_is_not_the_packs_own_code_replaces_nothing(stage, pack, eventually):
    assert stage.run("pack_of_the_test:version") == 1
    for name in ("__pycache__/x.py", ".git/hook.py", "node_modules/y.py", "notes.txt"):
        pack("changed", name)
    watch = stage.seat.worker.sources
    eventually(lambda: watch.poll() is None)
    assert stage.run("pack_of_the_test:version") == 1 and stage.record.generation == 1


@over("venv")
def test_sources_are_looked_at_only_where_that_is_asked_for(stage):
    stage.serve()
    assert stage.seat.worker.sources is None


def test_an_environment_built_anew_by_another_process_is_used_from_the_next_idle_moment(settings, eventually):
    with WorkerPool(replace(settings, tick=0.1)) as pool:
        plan = EnvPlan(key="built-again")
        pool.build(plan)
        first = pool.call(plan, "sys:exec_prefix.__str__")
        with WorkerPool(settings) as other:
            other.remove(plan)
            other.build(plan)
        eventually(lambda: pool.call(plan, "sys:exec_prefix.__str__") != first, 20)
        assert pool.record(plan).generation == 2
        assert any("its environment changed" in line for line in pool.story(plan))

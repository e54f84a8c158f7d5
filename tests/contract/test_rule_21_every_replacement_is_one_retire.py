"""Rule 21: every replacement goes through one retire, which forgets everything that belonged to the process."""

import ast
import threading
from pathlib import Path

import pytest

import comfy_env.lifecycle
from comfy_env import errors
from comfy_env.lifecycle import events
from comfy_env.lifecycle.record import WorkerRecord
from comfy_env.testing.stage import needs
from tests.contract.worlds import over

KEPT = {"generation", "state", "pid", "device", "born", "due", "activity", "ending", "stack", "status", "closing"}
"""What the row of a worker that is being ended still says; the rest is forgotten at once."""


def make_memories(timed):
    """Let the worker hold, stand in, be looked at, belong to a prompt and be stale."""
    timed.prompt.id = "p"
    timed.worker_grows(4096)
    for event in (events.StandInsChanged(1, 3), events.HostHoldsChanged(1, 2, 5), events.SourceChanged()):
        timed.seat.post(event)


def replace_by_kill(timed):
    timed.pool.kill(timed.plan)


def replace_by_source(timed):
    timed.seat.post(events.StandInsChanged(1, 0))
    timed.pool.sources_changed(timed.plan)


WAYS = {"killed": replace_by_kill, "stale": replace_by_source}


@pytest.mark.parametrize("way", WAYS)
def test_the_row_after_a_replacement_starts_empty(timed, monkeypatch, way):
    monkeypatch.setattr("comfy_env.pool.ticking._tell_holds", lambda house, seat: None)
    make_memories(timed)
    WAYS[way](timed)
    timed.prompt.id = ""
    assert timed.call("add", 1, 1) == 2
    row = timed.seat.env.row
    assert (row.generation, row.held, row.stand_ins, row.host_tensors, row.host_references) == (2, 0, 0, 0, 0)
    assert (row.prompt, row.stale, row.settling, row.wanted, row.ending, row.verdict, row.stack) == ("", None, None, None, None, None, "")
    assert row.activity.calls == 1 and row.gpu_ok


@needs("survives_crash")
def test_a_crash_forgets_as_much_as_a_kill(timed):
    make_memories(timed)
    with pytest.raises(errors.WorkerCrashed):
        timed.call("die", "exit")
    assert timed.call("add", 1, 1) == 2
    row = timed.seat.env.row
    assert (row.held, row.stand_ins, row.host_tensors, row.host_references, row.stale) == (0, 0, 0, 0, None)


@over("scripted")
def test_a_worker_that_is_being_ended_holds_nothing_any_more(timed):
    """A manager that asks what may be freed must not be told of memory that is on its way back."""
    make_memories(timed)
    gate, reached = threading.Event(), threading.Event()
    timed.spy.before["kill"] = lambda process: reached.set() or gate.wait(30)
    killer = timed.on_a_thread(timed.pool.kill, timed.plan)
    assert reached.wait(30)
    row = timed.seat.env.row
    forgotten = [name for name in WorkerRecord._fields if name not in KEPT]
    assert [getattr(row, name) for name in forgotten] == [getattr(WorkerRecord(), name) for name in forgotten]
    gate.set()
    killer.result(30)


def test_kills_are_asked_for_in_one_place_only():
    """A row that was given up is struck in one place; besides, only the second try at a worker that would not die asks for a kill."""
    found = []
    for path in sorted(Path(comfy_env.lifecycle.__file__).parent.glob("*.py")):
        for function in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)):
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
            found += [f"{path.stem}.{function.name}" for node in calls if node.func.id == "Kill"]
    assert found == ["endings.strike", "endings.kill_again"]

"""Rule 6: a worker is trusted in one place, after its proof, and its row unpacks as worker and generation."""

import ast
import threading
from pathlib import Path

import comfy_env.lifecycle
from comfy_env.hooks import hookimpl
from comfy_env.testing.stage import LIMIT


class Ear:
    def __init__(self):
        self.heard = []

    @hookimpl
    def comfy_env_worker_born(self, record):
        self.heard.append(("born", record.state))

    @hookimpl
    def comfy_env_worker_proved(self, record):
        self.heard.append(("proved", record.state))

    @hookimpl
    def comfy_env_call_started(self, record, call):
        self.heard.append(("call", record.state))


def test_the_row_unpacks_as_worker_and_generation(stage):
    stage.serve()
    worker, generation = stage.record
    assert (worker.env, worker.generation, generation) == (stage.plan.key, 1, 1)
    assert worker.calls == 1 and worker.idle >= 0.0


def test_nothing_is_called_and_nobody_is_told_of_a_worker_before_its_proof(stage, eventually):
    ear, gate = Ear(), threading.Event()
    stage.pool._house.observers.add(ear)
    stage.spy.before["verify"] = lambda process: gate.wait(LIMIT)
    call = stage.start("add", 1)
    eventually(lambda: stage.pool.seats() and stage.state() == "proving")
    assert [what for what, _ in ear.heard] == ["born"] and not call.done()
    gate.set()
    assert call.result(LIMIT) == 1
    assert [what for what, _ in ear.heard] == ["born", "proved", "call"]
    assert ear.heard[-1] == ("call", "busy")


def test_a_row_comes_to_life_at_one_place_in_the_code():
    """Elsewhere rows are only emptied, changed, or kept as what is left of a worker."""
    births = []
    for path in sorted(Path(comfy_env.lifecycle.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr == "SPAWNING":
                births.append(f"{path.name}:{node.lineno}")
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "born_as":
                births.append(path.name)
    assert births.count("endings.py") == 1
    assert sum(name.startswith("record.py:") for name in births) == 2, births  # the state's place in BIRTH, and born_as itself

"""Workflows over real workers: several Pythons in one workflow, progress, a worker killed in the middle, an interrupt."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest

from comfy_env import WorkerPool
from comfy_env.errors import WorkerCrashed
from comfy_env.runner import Runner
from comfy_env.settings import Settings

from .conftest import NODES, workflow
from .fakes import Diary

SLOW = NODES + '''
import os, platform, time
from comfy.utils import ProgressBar

class Where:
    FUNCTION, RETURN_TYPES, OUTPUT_NODE = "run", ("STRING", "INT"), True
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}, "optional": {"before": ("STRING",)}}
    def run(self, before=""):
        return (before + platform.python_version()[:-2].rstrip(".") + ";", os.getpid())

class Climb:
    """Reports progress until it is ended or has done its steps."""
    FUNCTION, RETURN_TYPES, OUTPUT_NODE = "run", ("INT",), True
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"steps": ("INT", {}), "pause": ("FLOAT", {"default": 0.0})}}
    def run(self, steps, pause):
        bar = ProgressBar(steps)
        for _ in range(steps):
            time.sleep(pause)
            bar.update(1)
        return (os.getpid(),)
'''


@pytest.fixture
def pool(tmp_path):
    folders = {f"{name}_folder": tmp_path / name for name in ("runtime", "log", "envs")}
    with WorkerPool(Settings(**folders, birth=20.0)) as pool:
        yield pool


@pytest.fixture
def slow(pack):
    """`slow("name", python=…)` is the plan of a pack of slow nodes in an interpreter of this machine."""
    return lambda name="a", python=sys.executable: pack(name, SLOW, interpreter=python)


def test_one_workflow_runs_over_every_python_of_this_machine(pack, pool, interpreters):
    start = "from . import nodes\nNODE_CLASS_MAPPINGS = {'Where%s': nodes.Where}\n"
    minors = [python.partition(".")[2] for python in interpreters]
    plans = [pack(f"p{minor}", SLOW, start % minor, interpreter=path) for minor, path in zip(minors, interpreters.values(), strict=True)]
    links = [{}] + [{"before": [str(at), 0]} for at in range(len(minors) - 1)]
    flow = workflow(**{f"n{at}": (f"Where{minor}", given) for at, (minor, given) in enumerate(zip(minors, links, strict=True))})
    report = Runner(pool, plans).run(flow)
    assert report.ok, report.errors
    last = report.outputs[str(len(minors) - 1)][0][0]
    assert [".".join(part.split(".")[:2]) for part in last.split(";")[:-1]] == list(interpreters)
    assert len({row.pid for row in report.rows}) == len(minors)
    assert all(report.outputs[row.node][1] == [row.pid] for row in report.rows)


def test_progress_reaches_the_watcher_under_its_node(slow, pool):
    diary = Diary()
    Runner(pool, [slow()], watcher=diary).run(workflow(n5=("Climb", {"steps": 4, "pause": 0})))
    assert [fact for kind, fact in diary.heard if kind == "progress"] == [("5", 1), ("5", 2), ("5", 3), ("5", 4)]


def test_a_killed_worker_fails_its_node_and_the_next_generation_finishes_the_workflow(slow, pool):
    plan = slow()

    class Killer(Diary):
        struck = False

        def progress(self, node, progress):
            if not self.struck:
                self.struck = True
                os.kill(pool.record(plan).pid, signal.SIGKILL)

    flow = workflow(n1=("Give", {"value": 3}), n2=("Climb", {"steps": 60, "pause": 0.02}), n3=("Show", {"value": ["1", 0]}))
    runner = Runner(pool, [plan], watcher=Killer())
    first = runner.run(flow)
    assert first.row("2").state == "failed" and isinstance(first.errors[0].__cause__, WorkerCrashed)
    assert "SIGKILL" in str(first.errors[0])
    assert first.row("3").state == "done"
    second = runner.run(flow)
    assert second.ok
    assert (second.row("1").state, second.row("2").state, second.row("2").generation) == ("cached", "done", 2)
    assert second.outputs["2"][0][0] != first.row("2").pid


def test_an_interrupt_ends_the_running_node_and_skips_the_rest(slow, pool):
    moving = threading.Event()

    class Starter(Diary):
        def progress(self, node, progress):
            moving.set()

    runner = Runner(pool, [slow()], watcher=Starter())
    flow = workflow(n1=("Climb", {"steps": 2000, "pause": 0.02}), n2=("Show", {"value": ["1", 0]}))
    thread = threading.Thread(target=lambda: (moving.wait(60), runner.interrupt()))
    thread.start()
    report = runner.run(flow)
    thread.join()
    assert report.interrupted
    assert [row.state for row in report.rows] == ["failed", "skipped"]


IMAGES = '''
import numpy
class Make:
    FUNCTION, RETURN_TYPES = "run", ("IMAGE",)
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}
    def run(self):
        return (numpy.linspace(0, 1, 24, dtype="float32").reshape(1, 2, 4, 3),)

class Flip:
    FUNCTION, RETURN_TYPES, OUTPUT_NODE = "run", ("IMAGE", "STRING"), True
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"image": ("IMAGE",)}}
    def run(self, image):
        return (1 - numpy.asarray(image), type(image).__module__.split(".")[0])
'''


@pytest.mark.slow
def test_an_image_crosses_from_worker_to_worker_as_it_is(pack, pool):
    numpy = pytest.importorskip("numpy")
    first = pack("a", IMAGES, "from .nodes import Make\nNODE_CLASS_MAPPINGS = {'Make': Make}\n", interpreter=sys.executable)
    second = pack("b", IMAGES, "from .nodes import Flip\nNODE_CLASS_MAPPINGS = {'Flip': Flip}\n", interpreter=sys.executable)
    report = Runner(pool, [first, second]).run(workflow(n1=("Make", {}), n2=("Flip", {"image": ["1", 0]})))
    assert report.ok, report.errors
    assert numpy.allclose(numpy.asarray(report.outputs["2"][0][0]), 1 - numpy.asarray(report.outputs["1"][0][0]))


def test_a_pack_with_the_two_lines_of_the_guide_runs_in_every_python(pack, pool, interpreters):
    start = "from comfy_env import register_nodes\n\nNODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS = register_nodes()\n"
    nodes = NODES + "NODE_CLASS_MAPPINGS = {'Show': Show}\n"
    for minor, python in interpreters.items():
        plan = pack(f"two-lines-{minor}", nodes, start, interpreter=python)
        assert Runner(pool, [plan]).run(workflow(n1=("Show", {"value": 7}))).outputs["1"] == [[7]]

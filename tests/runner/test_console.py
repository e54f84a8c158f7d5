"""What a run shows while it goes on: lines in a pipe, bars on a terminal."""

from __future__ import annotations

import io

import pytest

from comfy_env.runner import Runner
from comfy_env.runner.console import watching
from comfy_env.values import BuildStep, Progress

from .conftest import workflow

FLOW = workflow(n1=("Give", {"value": 1}), n2=("Fail", {"value": ["1", 0]}), n3=("Show", {"value": ["2", 0]}))


@pytest.mark.parametrize("bars", [False, True])
def test_each_node_gets_a_line_when_it_ends(pack, pool, bars):
    if bars:
        pytest.importorskip("rich")
    stream = io.StringIO()
    with watching(stream, bars) as watcher:
        watcher.building(BuildStep("env-a", "installing [numpy]", 0.3))
        Runner(pool, [pack()], watcher=watcher).run(FLOW)
    text = " ".join(stream.getvalue().split())
    assert "node 1 Give done in" in text
    assert "node 2 Fail failed" in text and "no good" in text
    assert "node 3 Show skipped (env-a): node 2 has no result" in text


def test_a_pipe_gets_no_bars():
    stream = io.StringIO()
    with watching(stream) as watcher:
        watcher.building(BuildStep("env-a", "resolving", 0.25))
        watcher.building(BuildStep("env-a", "resolving", 0.26))
    assert stream.getvalue() == "  build env-a  25%  resolving\n"


def test_progress_in_a_pipe_is_told_at_most_once_a_second():
    stream, node = io.StringIO(), FLOW.nodes["1"]
    with watching(stream) as watcher:
        for value in range(1000):
            watcher.progress(node, Progress(value, 1000))
    assert 1 <= len(stream.getvalue().splitlines()) <= 3

"""The demo's third pack: nodes in a conda environment, alone and in one workflow with the two packs in virtual environments."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from comfy_env import EnvPlan, WorkerPool
from comfy_env.runner import Runner, Workflow
from comfy_env.settings import Settings
from comfy_env.values import Conda

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
pytestmark = [pytest.mark.real, pytest.mark.shares("folder")]   # uv keeps locks in the temporary folder


@pytest.fixture
def conda(channel):
    """The third pack's plan; its channel is the one on this disk."""
    (plan,) = EnvPlan.from_pack(Path(__file__).with_name("pack_conda"))
    assert plan.backend == "pixi" and plan.conda.channels == ("conda-forge",)
    return replace(plan, conda=Conda((channel.as_uri(),), plan.conda.dependencies))


@pytest.fixture
def pool(tool_settings):
    with WorkerPool(replace(tool_settings, birth=30.0, runtime_folder=Settings.read().runtime_folder)) as pool:
        yield pool


def flow(nodes: dict) -> Workflow:
    return Workflow.parse({number: {"class_type": kind, "inputs": inputs} for number, (kind, inputs) in nodes.items()})


def test_its_nodes_run_in_the_conda_environment_with_activation_seen(conda, pool):
    state = pool.build(conda)
    prefix = str(state.interpreter.parents[1])
    names = "GREETING_HOME,GREETING_STATE,CONDA_PREFIX,GREETING_TONE,PATH"
    report = Runner(pool, [conda]).run(flow({"1": ("CondaStamp", {}), "2": ("CondaVariables", {"names": names})}))
    assert report.ok, report.errors
    home, state_variable, conda_prefix, tone, path = report.outputs["2"][0][0].split(";")
    assert (home, state_variable, conda_prefix, tone) == (f"{prefix}/share", "on", prefix, "warm")
    assert path.split(":")[0] == f"{prefix}/bin"
    assert report.row("2").state == "done" and pool.call(conda, "sys:intern", "x") == "x"


def test_an_environment_pixi_made_in_the_pack_is_activated_too(conda, pool, tmp_path):
    made = pool.build(conda).interpreter.parents[4]
    shutil.copytree(made / ".pixi", tmp_path / ".pixi", symlinks=True)
    (tmp_path / "pixi.toml").write_text("")
    plan = EnvPlan(key="by-hand", backend="pixi", root=tmp_path)
    assert pool.inspect(plan).provider == "pixi, by hand" and pool.inspect(plan).channels
    assert pool.call(plan, "os:getenv", "GREETING_HOME") == f"{tmp_path}/.pixi/envs/default/share"
    assert pool.call(plan, "os:getenv", "CONDA_PREFIX") == f"{tmp_path}/.pixi/envs/default"


@pytest.mark.slow
def test_three_packs_share_one_workflow(conda, pool, tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from demo_parts.worlds import worlds

    image.linear_gradient("L").convert("RGB").save(tmp_path / "photo.png")
    nodes = json.loads((EXAMPLES / "workflow.json").read_text())
    nodes["16"] = {"class_type": "CondaStamp", "inputs": {}}
    nodes["1"]["inputs"]["path"], nodes["18"]["inputs"]["folder"] = str(tmp_path / "photo.png"), str(tmp_path)
    nodes["8"]["inputs"]["rounds"] = 3
    plans = [*worlds().plans, conda]
    for plan in plans:
        pool.build(plan)
    report = Runner(pool, plans).run(Workflow.parse(nodes))
    assert report.ok, report.errors
    assert len({row.pid for row in report.rows}) == 3 and list(tmp_path.glob("two_worlds*.png"))
    assert sys.prefix not in str(pool.inspect(conda, probe=False).interpreter)

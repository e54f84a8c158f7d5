"""`status`, `plan`, `build`, `remove` and `run`, over a pack that brings a small backend of its own: no package index is needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from comfy_env.cli.exits import Exit

BACKEND = '''
import sys
from pathlib import Path

from comfy_env import BuildFailed, hookimpl
from comfy_env.backends.local import LocalBackend
from comfy_env.values import BuildStep, Changes, EnvState, EnvStatus

HERE = Path(__file__).parent


class Toy(LocalBackend):
    def state(self, plan):
        built = (HERE / "built").exists()
        return EnvState(plan.key, EnvStatus.READY if built else EnvStatus.MISSING, Path(sys.executable), HERE,
                        "" if built else "never built", "" if built else "comfy-env build", (("python", "3.x"),))

    @hookimpl
    def comfy_env_inspect(self, plan, probe):
        return self.state(plan)

    @hookimpl
    def comfy_env_plan(self, plan):
        if "no-such-thing" in plan.dependencies:
            raise BuildFailed("no wheel of no-such-thing", env=plan.key, hint="name another")
        return Changes(plan.key, install=plan.dependencies, python="3.x", download_bytes=3 << 20)

    @hookimpl
    def comfy_env_build(self, plan, progress):
        progress(BuildStep(plan.key, "laying bricks", 0.5))
        if "no-such-thing" in plan.dependencies:
            raise BuildFailed("no wheel of no-such-thing", env=plan.key, hint="name another")
        (HERE / "built").touch()
        return self.state(plan)

    @hookimpl
    def comfy_env_remove(self, plan):
        (HERE / "built").unlink(missing_ok=True)
        return self.state(plan)


backend = Toy()
'''
NODES = '''
import os


class Double:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"x": ("INT", {"default": 1})}}

    RETURN_TYPES = ("INT",)
    FUNCTION = "go"
    OUTPUT_NODE = True

    def go(self, x):
        if x == 13:
            raise ValueError("thirteen is not doubled")
        return {"ui": {"text": [str(2 * x)]}, "result": (2 * x,)}


NODE_CLASS_MAPPINGS = {"Double": Double}
'''


@pytest.fixture
def toy(pack: Callable[..., Path]) -> Callable[..., Path]:
    """`toy("name", "numpy<2")` writes a pack with its own backend and one node."""

    def write(name: str, *dependencies: str) -> Path:
        folder = pack(name, f'backend = "{name}-toy"\ndependencies = {json.dumps(dependencies)}')
        with (folder / "pyproject.toml").open("a", encoding="utf-8") as file:
            file.write(f'\n[project.entry-points."comfy_env.backends"]\n{name}-toy = "toy_backend:backend"\n')
        (folder / "toy_backend.py").write_text(BACKEND, encoding="utf-8")
        (folder / "__init__.py").write_text(NODES, encoding="utf-8")
        return folder

    return write


MINIMAL = '''
from comfy_env.backends.local import LocalBackend

backend = LocalBackend()
'''


def test_status_names_a_variable_that_is_no_setting(cli, pack, monkeypatch):
    monkeypatch.setenv("COMFY_ENV_IDLE_REEP_SECONDS", "5")
    answer = cli("status", pack("one", 'backend = "in-process"'))
    assert answer.code == Exit.DONE
    assert "COMFY_ENV_IDLE_REEP_SECONDS is set, but it is no setting: did you mean COMFY_ENV_IDLE_REAP_SECONDS?" in answer.out


@pytest.mark.parametrize("verb", ["status", "plan", "build", "remove"])
@pytest.mark.parametrize("backend", ["in-process", "bare"])
def test_a_backend_that_makes_no_environments_has_nothing_to_build_and_that_is_no_failure(cli, pack, verb, backend):
    folder = pack("one", f'backend = "{backend}"')
    with (folder / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write('\n[project.entry-points."comfy_env.backends"]\nbare = "bare_backend:backend"\n')
    (folder / "bare_backend.py").write_text(MINIMAL, encoding="utf-8")
    answer = cli(verb, folder)
    assert (answer.code, answer.err) == (Exit.DONE, "")
    assert verb == "status" or f"nothing to {'remove' if verb == 'remove' else 'build'}" in answer.out


@pytest.mark.parametrize(("table", "told"), [
    ('python = "3.9"', "it wants Python 3.9, and this is"),
    ('dependencies = ["packaging<1"]', "it wants packaging<1, and packaging is"),
    ('dependencies = ["no-such-thing"]', "no-such-thing is not installed"),
])
def test_what_an_in_process_plan_cannot_have_is_named_and_not_ignored(cli, pack, table, told):
    folder = pack("one", f'backend = "in-process"\n{table}')
    for verb in ("status", "build"):
        answer = cli(verb, folder)
        assert answer.code == Exit.NOT_READY and told in answer.out and 'set backend = "venv"' in answer.out
    (folder / "__init__.py").write_text(NODES, encoding="utf-8")
    workflow = folder / "w.json"
    workflow.write_text('{"1": {"class_type": "Double", "inputs": {"x": 2}}}')
    refused = cli("run", workflow, "--pack", folder)
    assert refused.code == Exit.WORKER and told.split(", and")[0] in refused.err and "next: set backend" in refused.err


def test_what_a_backend_never_looks_at_is_named(cli, pack, caplog):
    folder = pack("one", 'backend = "bare"\npython = ">=3.9"\ndependencies = ["numpy<2"]')
    with (folder / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write('\n[project.entry-points."comfy_env.backends"]\nbare = "bare_backend:backend"\n')
    (folder / "bare_backend.py").write_text(MINIMAL, encoding="utf-8")
    (folder / "__init__.py").write_text(NODES, encoding="utf-8")
    assert "whether there is Python >=3.9, numpy<2 was not looked at" in cli("build", folder).out
    assert "looks at none: Python >=3.9, numpy<2" in caplog.text


@pytest.fixture
def workflow(tmp_path: Path) -> Callable[..., Path]:
    def write(x: object = 4) -> Path:
        path = tmp_path / "workflow.json"
        nodes = {"1": {"class_type": "Double", "inputs": {"x": x}}, "2": {"class_type": "Double", "inputs": {"x": ["1", 0]}}}
        path.write_text(json.dumps(nodes), encoding="utf-8")
        return path

    return write


def test_status_names_what_is_not_ready_why_and_the_command_that_mends_it(cli, toy):
    answer = cli("status", toy("one"))
    assert answer.code == Exit.NOT_READY
    for word in ("one", "missing", "one-toy", "never built", "comfy-env build"):
        assert word in answer.out


def test_status_of_ready_environments_ends_with_zero(cli, toy):
    folder = toy("one")
    cli("build", folder)
    answer = cli("status", folder, "--json")
    assert answer.code == Exit.DONE
    (state,) = answer.data["envs"]
    assert (state["state"], state["python"]) == ("ready", "3.x")
    assert state["pack"].startswith("one")
    assert state["declared"].endswith("pyproject.toml:5")


def test_status_shows_every_pack_also_beside_one_whose_backend_is_unknown(cli, toy, pack):
    folder = toy("one").parent
    pack("two", 'backend = "no-such-backend"')
    states = {env["key"]: env for env in cli("status", folder, "--json").data["envs"]}
    assert [env["state"] for env in states.values()] == ["missing", "broken"]
    assert "no-such-backend" in list(states.values())[1]["reason"]


def test_plan_shows_what_a_build_would_do_and_who_cannot_share(cli, toy):
    folder = toy("one", "numpy<2").parent
    toy("two", "numpy>=2")
    answer = cli("plan", folder)
    assert answer.code == Exit.DONE
    assert "numpy<2" in answer.out and "3 MiB" in answer.out
    assert "cannot share an environment: numpy <2 against >=2" in answer.out
    assert [conflict["what"] for conflict in cli("plan", folder, "--json").data["conflicts"]] == ["numpy"]


def test_a_pack_that_cannot_be_planned_hides_no_other(cli, toy):
    folder = toy("one", "no-such-thing").parent
    toy("two", "numpy>=2")
    answer = cli("plan", folder)
    assert answer.code == Exit.BUILD and "numpy>=2" in answer.out and "no wheel of no-such-thing" in answer.out + answer.err
    bad, good = cli("plan", folder, "--json").data["envs"]
    assert bad["error"]["type"] == "BuildFailed" and good["install"] == ["numpy>=2"]


def test_plan_changes_nothing(cli, toy):
    folder = toy("one")
    cli("plan", folder)
    assert cli("status", folder).code == Exit.NOT_READY


def test_build_tells_its_steps_on_stderr_and_the_result_on_stdout(cli, toy):
    answer = cli("build", toy("one"), "--json")
    assert answer.code == Exit.DONE
    assert "50%  laying bricks" in answer.err
    assert [env["state"] for env in answer.data["envs"]] == ["ready"]


def test_one_environment_that_cannot_be_built_does_not_stop_the_others(cli, toy):
    folder = toy("a-bad", "no-such-thing").parent
    toy("good")
    answer = cli("build", folder, "--json")
    assert answer.code == Exit.BUILD
    assert [env["state"] for env in answer.data["envs"]] == ["failed", "ready"]
    assert answer.data["envs"][0]["error"]["hint"] == "name another"
    assert "next: name another" in answer.err


def test_build_can_be_narrowed_to_one_environment(cli, toy):
    folder = toy("one").parent
    toy("two")
    keys = [env["key"] for env in cli("status", folder, "--json").data["envs"]]
    cli("build", folder, "--env", keys[0])
    assert [env["state"] for env in cli("status", folder, "--json").data["envs"]] == ["ready", "missing"]


def test_remove_removes(cli, toy):
    folder = toy("one")
    cli("build", folder)
    assert cli("remove", folder).code == Exit.DONE
    assert cli("status", folder).code == Exit.NOT_READY


def test_a_wrong_declaration_ends_with_its_own_code(cli, pack):
    answer = cli("status", pack("one", "pithon = '3.11'"), "--json")
    assert answer.code == Exit.DECLARATION
    assert answer.data["error"]["type"] == "PlanError"


def test_a_cancelled_build_ends_as_interrupted(cli, toy, monkeypatch):
    folder = toy("one")

    def cancel(watcher, step):
        raise KeyboardInterrupt

    monkeypatch.setattr("comfy_env.runner.console.Lines.building", cancel)
    assert cli("build", folder).code == Exit.INTERRUPTED
    assert cli("status", folder).code == Exit.NOT_READY


# ---------------------------------------------------------------- run

def test_run_shows_a_row_per_node_and_what_the_nodes_show(cli, toy, workflow):
    answer = cli("run", workflow(4), "--pack", toy("one"), "--build", "--json")
    assert answer.code == Exit.DONE, answer.err
    rows = answer.data["rows"]
    assert [(row["node"], row["state"], row["generation"]) for row in rows] == [("1", "done", 1), ("2", "done", 1)]
    assert answer.data["ui"]["2"] == {"text": ["16"]}
    assert "laying bricks" in answer.err and "node 2 Double done" in answer.err


def test_run_takes_other_constants_from_the_command_line(cli, toy, workflow):
    answer = cli("run", workflow(4), "--pack", toy("one"), "--build", "--set", "1.x=5", "--json")
    assert answer.data["ui"]["2"] == {"text": ["20"]}


def test_run_ends_with_the_code_of_a_failed_node_and_names_it(cli, toy, workflow):
    answer = cli("run", workflow(13), "--pack", toy("one"), "--build")
    assert answer.code == Exit.CALL
    assert "thirteen is not doubled" in answer.err
    assert "failed" in answer.out and "skipped" in answer.out


def test_run_refuses_an_environment_that_is_not_built(cli, toy, workflow):
    answer = cli("run", workflow(), "--pack", toy("one"))
    assert answer.code == Exit.WORKER
    assert "comfy-env build" in answer.err


def test_run_refuses_a_workflow_that_is_wrong(cli, toy, workflow, tmp_path):
    path = tmp_path / "wrong.json"
    path.write_text('{"1": {"class_type": "Dubble", "inputs": {}}}', encoding="utf-8")
    answer = cli("run", path, "--pack", toy("one"), "--build")
    assert answer.code == Exit.WORKFLOW
    assert "Dubble" in answer.err


def test_run_without_the_file_says_so(cli, toy, tmp_path):
    assert cli("run", tmp_path / "gone.json", "--pack", toy("one")).code == Exit.NOTHING

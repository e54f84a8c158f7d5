"""`doctor` says what is wrong and what to do about it."""

from __future__ import annotations

import importlib.metadata
import re
from email.message import Message
from pathlib import Path

import comfy_env
from comfy_env import settings
from comfy_env.cli import doctor
from comfy_env.cli.exits import Exit
from comfy_env.errors import PlanError
from comfy_env.orchestrator.settings import OrchestratorSettings


def verdicts(answer) -> dict[str, str]:
    return {finding["check"]: finding["verdict"] for finding in answer.data["findings"]}


def test_a_healthy_machine_has_no_problem_and_a_worker_answers(cli):
    answer = cli("doctor", "--json")
    found = verdicts(answer)
    assert "problem" not in found.values(), answer.out
    assert answer.code == Exit.DONE
    assert found["worker"] == "ok"


def test_quick_starts_no_worker(cli, monkeypatch):
    monkeypatch.setattr(doctor, "CHECKS", (doctor.python, doctor.system))
    assert "worker" not in verdicts(cli("doctor", "--quick", "--json"))


def test_a_setting_that_cannot_be_read_is_a_problem_not_an_end(cli, monkeypatch):
    monkeypatch.setattr(doctor, "CHECKS", (doctor.python, doctor.settings))
    monkeypatch.setenv("COMFY_ENV_PING_SECONDS", "soon")
    answer = cli("doctor", "--quick", "--json")
    assert answer.code == Exit.NOT_READY
    assert verdicts(answer)["settings"] == "problem"
    assert "COMFY_ENV_PING_SECONDS" in answer.out


def test_a_misspelled_variable_is_named_with_what_was_meant_and_is_no_failure(cli, monkeypatch):
    monkeypatch.setattr(doctor, "CHECKS", (doctor.variables,))
    monkeypatch.setenv("COMFY_ENV_IDLE_REAP_SECOND", "5")
    monkeypatch.setenv("comfy_env_uv", "off")
    monkeypatch.setenv("COMFY_ENV_ORCH_PROT", "1")
    for known in ("COMFY_ENV_PIXI", "COMFY_ENV_NONCE", "COMFY_ENV_ORCH_PORT", "COMFY_ENV_COMFYUI", "COMFY_ENV_CUDA_WHEELS_INDEX"):
        monkeypatch.setenv(known, "1")
    answer = cli("doctor", "--quick", "--json")
    assert answer.code == Exit.DONE
    told = {finding["text"].split()[0]: finding for finding in answer.data["findings"]}
    assert set(verdicts(answer).values()) == {"warning"}
    assert {name: finding["fix"] for name, finding in told.items()} == {
        "COMFY_ENV_IDLE_REAP_SECOND": "did you mean COMFY_ENV_IDLE_REAP_SECONDS?", "comfy_env_uv": "did you mean COMFY_ENV_UV?",
        "COMFY_ENV_ORCH_PROT": "did you mean COMFY_ENV_ORCH_PORT?",
    }


def test_every_variable_the_package_reads_is_a_known_one():
    """A variable read somewhere and listed nowhere would be called a stranger."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in Path(comfy_env.__file__).parent.rglob("*.py"))
    read = set(re.findall(r"[^_A-Z](COMFY_ENV_[A-Z0-9_]*[A-Z0-9])\b", source)) - {"COMFY_ENV_ECHO_LEDGER"}  # of the tests' agent
    assert settings.strangers(settings.variables(settings.Settings, OrchestratorSettings), dict.fromkeys(read, "1")) == []


def test_another_projects_package_of_this_name_is_a_problem(monkeypatch):
    foreign = Message()
    foreign["Version"] = "0.1.90"
    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: foreign)
    (finding,) = doctor.package()
    assert (finding.verdict, "uninstall" in finding.fix) == ("problem", True)


def test_a_checkout_that_is_not_installed_is_a_warning(monkeypatch):
    def missing(name: str):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "metadata", missing)
    (finding,) = doctor.package()
    assert finding.verdict == "warning"


def test_a_run_folder_that_cannot_be_used_is_a_problem(cli, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "CHECKS", (doctor.run_folder,))
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("COMFY_ENV_RUNTIME", str(tmp_path / "file" / "below"))
    assert verdicts(cli("doctor", "--quick", "--json"))["run_folder"] == "problem"


def test_a_check_that_fails_is_a_finding_with_the_errors_next_step():
    def broken():
        raise PlanError("wrong", hint="mend it")

    assert doctor._asked(broken) == [doctor.Finding("broken", "problem", "wrong", "mend it")]


def test_the_healthy_row_has_every_check(cli, monkeypatch):
    monkeypatch.setattr(doctor, "find_interpreter", lambda plan: (None, ()))
    assert {"python", "system", "package", "settings", "run folder", "interpreters", "uv", "pixi", "lifeline", "backend venv"} <= set(
        verdicts(cli("doctor", "--quick", "--json")))

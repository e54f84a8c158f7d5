"""An interpreter counts only after it ran as what it says it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from comfy_env.envs import interpreters, probes
from comfy_env.errors import PlanError
from comfy_env.values import EnvPlan

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def shim(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_hosts_own_python_is_taken_where_it_is_allowed():
    found, tried = interpreters.find(EnvPlan(key="k", python=">=3.9"))
    assert found.path == Path(sys.executable) and tried == ()
    assert interpreters.find(EnvPlan(key="k"))[0] == found


def test_a_shim_that_fails_is_passed_over_and_named(tmp_path, monkeypatch, interpreters):
    from comfy_env.envs import interpreters as finder

    other = next((version for version in interpreters if version != HERE), None)
    if other is None:
        pytest.skip("this machine has one Python only")
    bad = shim(tmp_path / "a", f"python{other}", "echo no such version >&2; exit 127")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / f"python{other}").symlink_to(interpreters[other])
    monkeypatch.setenv("PATH", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    found, tried = finder.find(EnvPlan(key="k", python=other))
    assert found.path == tmp_path / "b" / f"python{other}" and found.version.startswith(other)
    assert tried == (f"{bad}: exited with status 127: no such version",)


def test_what_was_tried_in_vain_is_told(tmp_path, monkeypatch):
    names = {"python3.20": "sleep 0; echo hello", "python3": "exit 0"}
    for name, text in names.items():
        shim(tmp_path, name, text)
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = EnvPlan(key="k", python="3.20")
    found, tried = interpreters.find(plan)
    assert found is None and len(tried) == 2 and all(str(tmp_path) in line for line in tried)
    assert "python3.20" in str(interpreters.missing(plan, tried))


def test_an_interpreter_that_hangs_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "LOOK_SECONDS", 0.5)
    assert "no answer within" in probes.look(shim(tmp_path, "python3", "sleep 600")).trouble


@pytest.mark.parametrize(("python", "comfy"), [("2.7", False), ("3.8", False), ("three", False), ("3.9", True)])
def test_a_python_no_worker_runs_on_is_refused(python, comfy):
    with pytest.raises(PlanError):
        interpreters.find(EnvPlan(key="k", python=python, comfy=comfy))


def test_an_exact_version_and_a_range_are_understood():
    wanted = interpreters.wanted(EnvPlan(key="k", python="3.10.13"))
    assert wanted.contains("3.10.13") and not wanted.contains("3.10.12")
    wanted = interpreters.wanted(EnvPlan(key="k", python="3.10"))
    assert wanted.contains("3.10.13") and not wanted.contains("3.11.0")


def test_a_probe_runs_isolated_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    facts = probes.look(Path(sys.executable))
    assert facts.trouble == "" and facts.version.startswith(HERE) and os.path.isabs(facts.base)


@pytest.mark.parametrize(
    ("lines", "trouble"),
    [
        (("packaging",), ""),
        (("packaging>=1",), ""),
        (("packaging<1",), "does not satisfy"),
        (("not-there-at-all",), "is not installed"),
        (('not-there-at-all; python_version < "3"',), ""),
    ],
)
def test_a_probe_holds_what_is_installed_against_what_was_asked(lines, trouble):
    found = probes.probe(Path(sys.executable), lines).trouble
    assert trouble in found and bool(trouble) == bool(found)

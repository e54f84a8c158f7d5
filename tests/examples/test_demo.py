"""The demo shows what it says: two packs, two worlds, a killed worker and its replacement, a picture."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import comfy_env

from .conftest import EXAMPLES

ROOT = Path(comfy_env.__file__).parent.parent


@pytest.fixture
def demo(tmp_path):
    """Run the demo with an empty HOME; return its output."""
    variables = {**os.environ, "HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    variables.update({f"COMFY_ENV_{name}": str(tmp_path / name.lower()) for name in ("ENVS", "RUNTIME", "LOGS")})
    (tmp_path / "home").mkdir()

    def run(*arguments: str) -> str:
        command = [sys.executable, str(EXAMPLES / "demo.py"), "--out", str(tmp_path / "out"), *arguments]
        done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run.variables = variables
    return run


@pytest.mark.real
def test_the_demo_shows_what_it_says_and_starts_warm_the_second_time(demo, tmp_path):
    first = demo()
    assert re.search(r"Worker \d+ was killed at .* of 150 rounds of node 8", first)
    assert "SIGKILL" in first
    rows = [line.split() for line in first.splitlines() if re.match(r"\d+ +(Classic|Modern)\w+ ", line)]
    assert len(rows) == 18 and {row[-1] for row in rows} <= {"done", "cached"}
    assert next(row for row in rows if row[1] == "ModernDiffusion")[-3] == "2"
    assert len({row[3] for row in rows}) == 2
    assert "in two major versions at once, each from its own environment" in first
    assert (tmp_path / "out" / "two_worlds_00001.png").read_bytes().startswith(b"\x89PNG")
    assert not re.search(r"[0-9a-f]{40}", first), "digests tell a newcomer nothing"
    assert "generation 1: started" in first and f"comfy-env story {rows[7][3]}" in first
    command = [sys.executable, "-m", "comfy_env.cli", "status", str(EXAMPLES)]
    status = subprocess.run(command, env=demo.variables, capture_output=True, text=True, timeout=60)
    assert (status.returncode, status.stdout.count(" ready ")) == (0, 2), status.stdout
    again = demo("--no-kill")
    assert again.count("ready in") == 2 and "was killed" not in again
    assert (tmp_path / "out" / "two_worlds_00002.png").is_file()


def test_the_demo_without_a_network_says_what_to_do(tmp_path):
    command = [sys.executable, str(EXAMPLES / "demo.py"), "--photo", str(tmp_path / "gone.png")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "there is no picture" in done.stderr and "next: name a PNG or JPEG file" in done.stderr and "Traceback" not in done.stderr

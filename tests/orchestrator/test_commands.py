"""`comfy-env serve` and `service`, against a real service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from comfy_env.cli import main
from comfy_env.cli.exits import Exit
from comfy_env.orchestrator.instance import is_served

from .town import Town, town

pytestmark = pytest.mark.deadline(120)
COMMAND = "import sys; from comfy_env.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Town]:
    with town(tmp_path) as here:
        yield here


def command(here: Town, *words: str, within: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *words], env=here.environ, capture_output=True, text=True, timeout=within, check=False
    )


def test_serve_becomes_the_service_under_the_same_number(here: Town):
    here.argv = lambda *more: [sys.executable, "-c", COMMAND, "serve", "--port", "0", "--agents", "comfy_env.testing.echo:plugin"]
    here.start()
    assert here.owner["pid"] == here.first.pid
    here.session()
    here.send("hello")
    here.wait(lambda: here.served() == ["hello"], 30)
    second = command(here, "serve", "--port", "0")
    assert second.returncode == 3 and "is served by process" in second.stderr


@pytest.mark.skipif(sys.version_info < (3, 11), reason="an older Python looks into the working folder first")
def test_what_lies_in_the_working_folder_is_not_imported(here: Town):
    """Somebody's downloads, or another checkout."""
    for name in ("aiohttp.py", "sqlite3.py", "comfy_env.py"):
        (here.folder / name).write_text("raise SystemExit('a file of the working folder runs')\n")
    here.argv = lambda *more: [sys.executable, "-P", "-c", COMMAND, "serve", "--port", "0"]
    here.start()
    here.do("restart")
    here.generation(2)


@pytest.mark.parametrize("port", ["99999", "-1", "http", "²"])
def test_a_port_that_is_none_is_refused_and_not_taken_for_another(here: Town, port: str):
    answer = subprocess.run(
        [sys.executable, "-m", "comfy_env.orchestrator", "serve", f"--port={port}"],
        env=here.environ, capture_output=True, text=True, timeout=60, check=False,
    )
    assert answer.returncode == 2 and "is no port" in answer.stderr and not here.state.exists()


def test_a_restart_under_a_supervisor_is_waited_for_while_nobody_serves(here: Town):
    here.environ["COMFY_ENV_ORCH_SUPERVISED"] = "1"
    here.start()
    asking = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "service", "restart", "--wait", "60"],
        env=here.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    try:
        assert here.first.wait(60) == 75
        here.wait(lambda: asking.poll() is not None or not is_served(here.state), 20, "nobody serves")
        here.start()
        out, err = asking.communicate(timeout=60)
    finally:
        asking.kill()
        asking.wait(10)
    assert asking.returncode == 0 and "generation 2 serves" in out, err


def test_status_restart_release_reap_and_stop(here: Town):
    here.start()
    here.session()
    here.send("hello")
    here.wait(lambda: here.served() == ["hello"], 30)
    status = command(here, "service", "status")
    assert "to load new code it starts its successor itself" in status.stdout
    assert status.returncode == 0 and f"generation 1, process {here.owner['pid']}" in status.stdout and "echo" in status.stdout
    assert "bytes" not in command(here, "service", "release", "echo").stderr
    assert "its worker was ended" in command(here, "service", "reap", "echo").stdout
    assert "it has no worker" in command(here, "service", "reap", "echo").stdout
    restarted = command(here, "service", "restart", "--wait", "40")
    assert restarted.returncode == 0 and "generation 2 serves" in restarted.stdout
    assert json.loads(command(here, "service", "status", "--json").stdout)["generation"] == 2
    assert command(here, "service", "stop").returncode == 0
    here.wait(lambda: here.services() == [], 20)


def test_a_restart_that_fails_ends_the_command_with_its_reason(tmp_path: Path):
    with town(tmp_path, copied=True) as here:
        here.environ["COMFY_ENV_AUTO_UPDATE_DISABLE"] = "1"
        here.start()
        here.edit("orchestrator/sessions.py", "class Sessions:", "class Sessions(:")
        failed = command(here, "service", "restart", "--wait", "60", within=90)
        assert failed.returncode == Exit.FAILED and "SyntaxError" in failed.stderr


def test_where_no_service_runs_every_action_says_so(tmp_path: Path, capfd, monkeypatch):
    monkeypatch.setenv("COMFY_ENV_ORCH_STATE_DIR", str(tmp_path / "state"))
    for action in ("status", "restart", "stop"):
        assert main(["service", action]) == Exit.NOTHING
        assert "next: comfy-env serve" in capfd.readouterr().err


def test_an_action_on_an_environment_needs_its_key(here: Town):
    here.start()
    answer = command(here, "service", "reap")
    assert answer.returncode == Exit.NOTHING and "needs the key" in answer.stderr


def test_nothing_of_ours_is_imported_after_the_service_is_ready(tmp_path: Path, eventually: Callable):
    """The disk may change under a running service: whatever it needs it has."""
    (tmp_path / "sitecustomize.py").write_text(SPY)
    with town(tmp_path) as here:
        here.environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path), here.environ["PYTHONPATH"]])
        here.environ["SPY_LOG"] = str(tmp_path / "imports")
        here.start()
        (tmp_path / "imports").unlink(missing_ok=True)
        here.session()
        here.send("say one; two")
        here.wait(lambda: here.served(), 30)
        here.wait(lambda: list(here.ends().values()) == [["done"]], 20)
        here.get("/api/state")
        mine = [line for line in _imports(tmp_path) if line.startswith(f"{here.first.pid} ")]
        here.do("restart")
        here.generation(2)
        mine += [line for line in _imports(tmp_path) if line.startswith(f"{here.first.pid} ")]
        assert mine == []


def _imports(folder: Path) -> list[str]:
    path = folder / "imports"
    return path.read_text().splitlines() if path.exists() else []


SPY = """
import os, sys

class Spy:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.startswith("comfy_env") and os.environ.get("SPY_LOG"):
            with open(os.environ["SPY_LOG"], "a") as file:
                file.write(f"{os.getpid()} {name}\\n")
        return None

sys.meta_path.insert(0, Spy)
"""

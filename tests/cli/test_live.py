"""`ps`, `story` and `sweep` against a real host in another process, alive and killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from comfy_env.cli.exits import Exit

HOST = """
import sys
from comfy_env import EnvPlan, WorkerPool
with WorkerPool() as pool:
    print(pool.call(EnvPlan.existing(sys.executable, "live"), "os:getpid"), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    folder = tmp_path / "runtime"
    monkeypatch.setenv("COMFY_ENV_RUNTIME", str(folder))
    return folder


@pytest.fixture
def host(runtime) -> Iterator[subprocess.Popen]:
    """A host with one ready worker; `host.worker` is the worker's pid."""
    with subprocess.Popen([sys.executable, "-c", HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        process.worker = int(process.stdout.readline())
        yield process
        process.stdin.close()
        process.wait(30)


def test_ps_shows_a_worker_of_another_process_and_story_tells_its_birth(cli, host, eventually):
    eventually(lambda: "proved" in cli("story", "live").out, what="the journal tells the worker's proof")
    (shown,) = cli("ps", "--json").data["hosts"]
    (env,) = shown["envs"]
    assert (shown["pid"], env["key"], env["generation"], env["pid"]) == (host.pid, "live", 1, host.worker)
    answer = cli("story", "live")
    assert answer.code == Exit.DONE
    assert f"told by host {host.pid}" in answer.out and "spawned" in answer.out and "proved" in answer.out


def test_a_host_that_closed_leaves_its_stories(cli, host, runtime):
    host.stdin.close()
    assert host.wait(30) == 0
    assert cli("ps", "--json").data == {"hosts": []}
    answer = cli("story", "live")
    assert "a host that closed" in answer.out and "proved" in answer.out


def test_a_killed_hosts_story_is_told_also_after_the_sweep(cli, host, eventually):
    eventually(lambda: str(host.worker) in cli("ps").out, what="the journal names the worker")
    host.send_signal(signal.SIGKILL)
    host.wait(30)
    assert cli("ps", "--json").data == {"hosts": []}
    assert "which died" in cli("story", "live").out
    seen = cli("sweep", "--dry-run")
    assert "would be removed" in seen.out
    assert "would be removed" in cli("sweep", "--dry-run").out, "a dry run changed something"
    swept = cli("sweep", "--json")
    assert swept.code == Exit.DONE and swept.data["removed"]
    assert f"host {host.pid}, which died" in cli("story", "live").out, "the sweep keeps what a post-mortem needs"
    assert cli("sweep").out == "nothing was left behind\n"

"""Who starts this process again: only evidence about this very process counts; under a supervisor it ends with 75 and spawns nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from comfy_env.orchestrator.restart import Mode
from comfy_env.orchestrator.supervise import Facts, judge

from .town import town

SET_AND_BECOME = "import os, sys; os.environ['SYSTEMD_EXEC_PID'] = str(os.getpid()); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.mark.parametrize(
    ("facts", "mode"),
    [
        (Facts(10, 9), Mode.SPAWN),
        (Facts(10, 9, environ={"SYSTEMD_EXEC_PID": "10"}), Mode.SUPERVISED),
        (Facts(10, 9, environ={"SYSTEMD_EXEC_PID": "9", "INVOCATION_ID": "x", "NOTIFY_SOCKET": "/run/x"}), Mode.SPAWN),
        (Facts(10, 9, environ={"container": "docker", "KUBERNETES_SERVICE_HOST": "x"}), Mode.SPAWN),
        (Facts(10, 1), Mode.SUPERVISED),
        (Facts(1, 0), Mode.NOTIFY),
        (Facts(10, 9, "PM2 v5.3.0: God"), Mode.SUPERVISED),
        (Facts(10, 9, "launchd"), Mode.SUPERVISED),
        (Facts(10, 9, "bash"), Mode.SPAWN),
        (Facts(10, 9, told=True), Mode.SUPERVISED),
        (Facts(10, 1, environ={"SYSTEMD_EXEC_PID": "10"}, told=False), Mode.SPAWN),
        (Facts(10, 1, environ={"SYSTEMD_EXEC_PID": "10"}, heir=True), Mode.SPAWN),
    ],
)
def test_the_evidence_is_judged(facts: Facts, mode: Mode):
    found = judge(facts)
    assert found.mode is mode and found.why


@pytest.mark.deadline(120)
def test_supervised_it_proves_the_new_code_and_ends_with_75(tmp_path: Path):
    with town(tmp_path, copied=True, SUPERVISED="-1") as here:
        argv = [sys.executable, "-c", SET_AND_BECOME, *here.argv()]
        here.argv = lambda *more: argv
        here.start()
        assert here.get("/api/state")["comes_back"] == {"mode": "supervised", "why": "systemd started this very process"}
        here.session()
        here.send("hello")
        here.wait(lambda: here.served() == ["hello"], 30)
        here.touch()
        assert here.first.wait(40) == 75
        assert here.attempts() == 0 and here.services() == []
        here.start()
        assert here.owner["generation"] == 2 and list(here.ends().values()) == [["done"]]


@pytest.mark.deadline(120)
def test_supervised_it_stays_with_code_that_cannot_serve(tmp_path: Path):
    with town(tmp_path, copied=True, SUPERVISED="1") as here:
        here.start()
        here.edit("orchestrator/sessions.py", "class Sessions:", "class Sessions(:")
        here.do("restart")
        here.wait(lambda: [note for note in here.notes() if "could not be loaded" in note and "SyntaxError" in note], 40)
        assert here.first.poll() is None and here.phase() == "cooldown"


@pytest.mark.deadline(120)
def test_a_marker_inherited_from_a_parent_does_not_count(tmp_path: Path):
    with town(tmp_path, SUPERVISED="-1") as here:
        argv = ["sh", "-c", '"$@"; exit $?', "sh", *here.argv()]   # so that its parent is no container's first process
        here.argv = lambda *more: argv
        here.start(SYSTEMD_EXEC_PID="1", INVOCATION_ID="abc")
        here.do("restart")
        here.generation(2)
        assert here.get("/api/state")["comes_back"]["mode"] == "spawn"


LISTEN_AND_BECOME = """
import os, socket, sys
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(100)
os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), TOWN_PORT=str(listener.getsockname()[1]))
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.deadline(120)
def test_a_socket_that_a_supervisor_opened_is_the_one_that_is_served(tmp_path: Path):
    with town(tmp_path) as here:
        argv = [sys.executable, "-c", LISTEN_AND_BECOME, *here.argv()]
        here.argv = lambda *more: argv
        here.start()
        variables = Path(f"/proc/{here.first.pid}/environ").read_bytes().split(b"\0")
        assert f"TOWN_PORT={here.address[1]}".encode() in variables
        here.do("restart")
        here.generation(2)
        assert here.get("/health")["generation"] == 2


# ---- one service per folder


@pytest.mark.deadline(120)
def test_a_second_service_ends_with_3_within_a_second_and_names_the_owner(tmp_path: Path, record_property):
    with town(tmp_path) as here:
        here.start()
        seconds = []
        for generation in (1, 2):
            begun = time.monotonic()
            second = subprocess.run(here.argv(), env=here.environ, cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False)
            seconds.append(time.monotonic() - begun)
            assert second.returncode == 3
            assert f"is served by process {here.owner['pid']}, generation {generation}, at {here.owner['url']}" in second.stderr
            if generation == 1:
                here.do("restart")
                here.generation(2)
        record_property("seconds", [f"{each:.2f}" for each in seconds])
        print("second serve:", seconds)
        assert min(seconds) < 1.0
        assert here.get("/health")["generation"] == 2


@pytest.mark.deadline(120)
def test_a_store_of_a_newer_version_is_refused_with_78(tmp_path: Path):
    import sqlite3

    with town(tmp_path) as here:
        here.state.mkdir()
        with sqlite3.connect(here.state / "store.db") as db:
            db.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
            db.execute("INSERT INTO meta VALUES ('readable_by', '99')")
            db.execute("PRAGMA user_version = 99")
        db.close()
        ended = subprocess.run(here.argv(), env=here.environ, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
        assert ended.returncode == 78 and "newer version" in ended.stderr

"""The gate around a real service: each reason not to restart keeps it shut, is named, and its end opens it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .town import Town, town

pytestmark = pytest.mark.deadline(120)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Town]:
    with town(tmp_path) as here:
        yield here


def waiting(here: Town) -> list[str]:
    return here.get("/api/state")["restart"]["waiting"]


def named(here: Town, what: str) -> list[str]:
    return here.wait(lambda: [line for line in waiting(here) if line.startswith(what)], 15, f"it waits for {what}")


def test_a_busy_agent_its_queue_and_its_worker_call_are_waited_for(here: Town):
    here.start()
    here.session()
    here.send("wait 2; one")
    here.send("two")
    here.do("restart")
    assert "agent echo" in named(here, "turn")[0]
    assert "1 for echo" in named(here, "queued message")[0]
    assert "in echo" in named(here, "worker call")[0]
    assert here.attempts() == 0
    here.generation(2)
    assert here.served() == ["wait 2; one", "two"], "the gate opened before the queue was empty"
    assert list(here.ends().values()) == [["done"], ["done"]]


def test_a_young_process_waits_unless_somebody_asks(tmp_path: Path):
    with town(tmp_path, copied=True, MIN_UPTIME_S="600") as here:
        here.start()
        here.touch()
        here.wait(lambda: here.phase() == "armed", 30)
        assert named(here, "uptime") and here.attempts() == 0
        here.do("restart")
        here.generation(2)


def test_a_plugins_blocker_is_named_with_its_owner_and_one_that_hangs_is_unknown(tmp_path: Path):
    says = tmp_path / "says"
    says.write_text("busy")
    with town(tmp_path, BLOCKER_REPLY_S="0.3", BLOCKER_ANNOUNCE_S="1") as here:
        here.environ["TOWN_SAYS"] = str(says)
        here.more = ["--agents", "tests.orchestrator.blocking:plugin"]
        here.start()
        here.do("restart")
        here.wait(lambda: "the file says so" in named(here, "plugin tests.orchestrator.blocking:plugin")[0], 15, "it is heard")
        says.write_text("hang")
        here.wait(lambda: [line for line in waiting(here) if "unknown: no answer within 0.3 s" in line], 15)
        here.wait(lambda: [note for note in here.notes() if "has been waiting for plugin" in note], 15, "people are told")
        assert here.attempts() == 0
        says.write_text("idle")
        here.generation(2)


def test_a_plugin_can_refuse_a_build_and_a_wish_is_not_refused(tmp_path: Path):
    says = tmp_path / "says"
    says.write_text("idle")
    says.with_suffix(".filter").touch()
    with town(tmp_path, copied=True) as here:
        here.environ["TOWN_SAYS"] = str(says)
        here.more = ["--agents", "tests.orchestrator.blocking:plugin"]
        here.start()
        here.touch()
        here.wait(lambda: [note for note in here.notes() if "is not loaded" in note and "not on a Monday" in note], 30)
        assert here.phase() == "idle"
        here.do("restart")
        here.generation(2)


def test_a_plugin_that_thinks_long_about_a_build_keeps_nobody_waiting(tmp_path: Path):
    says, filtered = tmp_path / "says", tmp_path / "says.filter"
    says.write_text("idle")
    filtered.write_text("hang")
    with town(tmp_path, copied=True) as here:
        here.environ["TOWN_SAYS"] = str(says)
        here.more = ["--agents", "tests.orchestrator.blocking:plugin"]
        here.start()
        here.session()
        here.touch()
        until = time.monotonic() + 6.0   # by then the build is tested, and the plugin asked
        while time.monotonic() < until:
            assert here.get("/health")["generation"] == 1
        here.send("hello")
        here.wait(lambda: here.served() == ["hello"], 30)
        filtered.unlink()
        here.generation(2)


def test_a_successor_on_probation_does_not_hand_over(tmp_path: Path):
    with town(tmp_path, CONFIRM_S="3") as here:
        here.start()
        here.do("restart")
        here.generation(2)
        here.do("restart")
        named(here, "succession")
        here.generation(3)


def test_with_autorestart_off_people_are_told_once_and_a_wish_loads_it(tmp_path: Path):
    with town(tmp_path, copied=True) as here:
        here.environ["COMFY_ENV_AUTORESTART"] = "0"
        here.start()
        here.touch()
        here.wait(lambda: [note for note in here.notes() if "new build is ready; `comfy-env service restart` loads it" in note], 30)
        here.touch("orchestrator/auth.py")
        here.wait(lambda: here.phase() == "staged" and len(here.notes()) == 2, 30)
        assert here.attempts() == 0
        here.do("restart")
        here.generation(2)


def test_with_everything_off_nothing_is_watched(tmp_path: Path):
    with town(tmp_path, copied=True) as here:
        here.environ["COMFY_ENV_AUTO_UPDATE_DISABLE"] = "1"
        here.start()
        here.touch()
        until = time.monotonic() + 2
        here.wait(lambda: time.monotonic() > until, 5)
        assert here.phase() == "idle" and here.notes() == []


def test_two_reasons_at_once_are_one_restart(tmp_path: Path):
    with town(tmp_path, copied=True) as here:
        here.start()
        here.session()
        here.send("wait 3")
        here.touch()
        here.do("restart")
        here.touch("orchestrator/auth.py")
        here.generation(2)
        until = time.monotonic() + 2.5
        here.wait(lambda: time.monotonic() > until, 5)
        assert here.owner["generation"] == 2 and here.attempts() == 1


# ---- the end of the service


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_its_workers_and_status_0(here: Town, signum: int):
    here.start()
    here.session()
    here.send("hello")
    here.wait(lambda: here.served() == ["hello"], 30)
    here.first.send_signal(signum)
    assert here.first.wait(20) == 0
    here.wait(lambda: here.pids() == [], 10, "nothing of it is left")


def test_a_signal_to_the_standby_ends_its_successor_too(tmp_path: Path):
    with town(tmp_path, CONFIRM_S="60") as here:
        here.start()
        here.do("restart")
        here.generation(2)
        here.first.send_signal(signal.SIGTERM)
        assert here.first.wait(20) == 0
        here.wait(lambda: here.services() == [], 10, "nobody serves")
        assert "could not be loaded" not in here.words()


def test_the_generation_does_not_reach_workers(here: Town):
    here.start()
    here.session()
    here.do("restart")
    here.generation(2)
    here.send("hello")
    here.wait(lambda: here.served() == ["hello"], 30)
    workers = set(here.pids()) - set(here.services())
    variables = [
        name for pid in workers for name in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if name.startswith(b"COMFY_ENV_ORCH")
    ]
    assert workers and variables == []

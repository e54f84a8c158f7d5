"""kill -9 at each boundary, alone and with old and new alive: the store checks clean, each message exactly once or undetermined."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from .load import Panel
from .town import Town, town

PROGRAM = Path(__file__).with_name("killed.py")
COMMITS = [f"{step}:{side}" for step in ("accept", "begin", "said", "end") for side in ("before", "after")]
OLD = ["spawned", "pool closed", "given up", "word given"]
NEW = ["said hello", "said listening", "word heard", "store taken", "said serving"]
TEXTS = [f"say {number}; wait 0.02; text {number}" for number in range(6)]

pytestmark = pytest.mark.deadline(180)


@contextlib.contextmanager
def kills(folder: Path, at: str, generation: int, **settings: str) -> Iterator[Town]:
    with town(folder, program=PROGRAM, CONFIRM_S="40", **settings) as here:
        here.environ |= {"KILL_AT": at, "KILL_GENERATION": str(generation), "KILL_FLAG": str(folder / "killed")}
        yield here


def test_a_client_that_stays_connected_is_shown_what_the_one_that_died_had_committed(tmp_path: Path):
    """The successor dies before it serves, so nobody closed the clients of the old one: they resume nothing by themselves."""
    with kills(tmp_path, "store changed", 2) as here:
        here.start()
        here.session()
        with Panel(here, every=0.05) as panel:
            here.do("restart")
            here.wait(lambda: panel.frames["restart.failed"], 40)
            here.send("after")
            here.wait(lambda: here.ends() and all(here.ends().values()), 30)
            last = here.events()[-1]["seq"]
            here.wait(lambda: panel.events and panel.events[-1] >= last, 20)
        committed = here.events()
        assert [event for event in committed if event["body"].get("text") == "my last word"] and was_killed(here)
        assert panel.generations == [1], "it was closed: this tells nothing"
        assert panel.events == [event["seq"] for event in committed]


def was_killed(here: Town) -> bool:
    return (here.folder / "killed").exists()


def send_all(here: Town, texts: list[str] = TEXTS) -> None:
    """Send each message under its own id until it is accepted, by whoever serves by then; start the service again if nobody does."""
    for number, text in enumerate(texts):
        given = {"session": "s", "id": f"id-{number}", "text": text}
        here.wait(lambda given=given: here._sent(given) or revived(here), 60, f"{text!r} is accepted")


def revived(here: Town) -> bool:
    """Start the service again where no process of it is left; never says that something was accepted."""
    if not here.services():
        here.first.wait(10)
        here.start()
    return False


def settled(here: Town) -> None:
    """Every message was served exactly once, or is shown as undetermined and was served once at most; the store is sound."""
    here.wait(lambda: revived(here) or _all_ended(here), 60, "every message has ended")
    ends = here.ends()
    served = here.served()
    texts = {event["message"]: event["body"]["text"] for event in here.events() if event["what"] == "message"}
    assert sorted(texts.values()) == sorted(TEXTS), "a message is missing or there twice"
    for number, outcomes in ends.items():
        assert outcomes in (["done"], ["undetermined"]), (texts[number], outcomes)
        times = served.count(texts[number])
        assert times == 1 if outcomes == ["done"] else times <= 1, (texts[number], outcomes, times)
    assert sum(outcomes == ["undetermined"] for outcomes in ends.values()) <= 1
    here.do("stop")
    here.wait(lambda: not here.services(), 20, "it ends")
    with contextlib.closing(sqlite3.connect(here.state / "store.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


def _all_ended(here: Town) -> bool:
    with contextlib.suppress(OSError, AssertionError):
        ends = here.ends()
        return len(ends) == len(TEXTS) and all(ends.values())
    return False


@pytest.mark.parametrize("at", COMMITS)
def test_a_process_killed_at_a_commit_loses_and_doubles_nothing(tmp_path: Path, at: str):
    with kills(tmp_path, at, 1) as here:
        here.start()
        here.session()
        send_all(here)
        here.wait(lambda: was_killed(here) or _all_ended(here), 60)
        settled(here)
        assert was_killed(here)


@pytest.mark.slow
@pytest.mark.parametrize("at", [*COMMITS[::2], *(pytest.param(at, marks=pytest.mark.long) for at in COMMITS[1::2])])
def test_a_successor_killed_at_a_commit_while_the_old_one_stands_by_loses_and_doubles_nothing(tmp_path: Path, at: str):
    with kills(tmp_path, at, 2) as here:
        here.start()
        here.session()
        here.do("restart")
        here.generation(2)
        send_all(here)
        settled(here)
        assert was_killed(here) and "could not be loaded" in here.words()


@pytest.mark.slow
@pytest.mark.parametrize(("at", "generation"), [*((at, 1) for at in OLD), *((at, 2) for at in NEW)])
def test_either_killed_at_a_step_of_the_handover_loses_and_doubles_nothing(tmp_path: Path, at: str, generation: int):
    with kills(tmp_path, at, generation) as here:
        here.start()
        here.session()
        send_all(here, TEXTS[:2])
        here.wait(lambda: len(here.ends()) == 2 and all(here.ends().values()), 30)
        here.do("restart")
        here.wait(lambda: was_killed(here), 40, f"killed at {at}")
        send_all(here)
        settled(here)

"""A replacement that cannot serve costs nothing: the old process serves on or again, says why, and does not try it once more."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .town import Town, is_zombie, town

pytestmark = pytest.mark.deadline(180)

DIES = "import os as _os; _os._exit(9)\n"


def served_before(here: Town) -> None:
    """Start the service, and give it a message before its sources change."""
    here.start()
    here.session()
    here.send("before")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Town]:
    with town(tmp_path, copied=True, CONFIRM_S="30") as here:
        served_before(here)
        yield here


def failed(here: Town, reason: str, within: float = 40.0) -> str:
    """Wait until people were told that a restart failed; return the line."""
    return here.wait(lambda: next((note for note in here.notes() if reason in note), ""), within, f"a note with {reason!r}")


def serves_on(here: Town, attempts: int = 1) -> None:
    """The first generation serves, nothing is lost or doubled, nothing is tried again, nothing of the replacement is left."""
    assert here.owner["generation"] == 1 and here.get("/health")["generation"] == 1
    here.send("after")
    here.wait(lambda: sorted(here.served()) == ["after", "before"], 30, "both messages are served")
    here.wait(lambda: sorted(here.ends().values()) == [["done"], ["done"]], 30)
    until = time.monotonic() + 1.0   # five questions to the gate, ten looks at the sources
    here.wait(lambda: time.monotonic() > until, 5)
    assert here.attempts() == attempts, "it was tried again"
    assert here.phase() == "cooldown" and here.services() == [here.owner["pid"]]


def test_a_syntax_error_is_noticed_before_anything_is_started_and_by_hand_costs_nothing(here: Town):
    here.edit("orchestrator/sessions.py", "class Sessions:", "class Sessions(:")
    line = failed(here, "SyntaxError")
    assert "sources changed and cannot be loaded" in line and here.attempts() == 0
    here.do("restart")
    assert "SyntaxError" in failed(here, "could not be loaded")
    serves_on(here)


def test_a_syntax_error_in_what_is_imported_first_is_told_too(here: Town):
    here.edit("orchestrator/pipe.py", "class Heir:", "class Heir(:")
    here.do("restart")
    assert "SyntaxError" in failed(here, "could not be loaded")
    serves_on(here)


def test_one_that_hangs_before_it_can_listen_is_ended(tmp_path: Path):
    with town(tmp_path, copied=True, LISTENING_S="2.5") as here:
        served_before(here)
        here.edit(
            "orchestrator/startup.py",
            "    if start.heir is not None:\n",
            "    import time; time.sleep(600)\n    if start.heir is not None:\n",
        )
        failed(here, "did not say in time that it can serve")
        serves_on(here)


def test_one_that_never_says_hello_is_ended(tmp_path: Path):
    with town(tmp_path, copied=True, HELLO_S="1.5") as here:
        served_before(here)
        here.edit("orchestrator/__main__.py", "    heir.say(HELLO, pid=os.getpid())\n", "    import time; time.sleep(600)\n")
        failed(here, "did not say hello in time")
        serves_on(here)


def test_one_that_dies_after_the_word_is_replaced_by_the_old_one(here: Town):
    here.edit("orchestrator/service.py", "        await self.holding.take(self.desk, looked=self._heir is not None)\n", f"        {DIES}")
    assert "exited with status 9" in failed(here, "could not be loaded")
    serves_on(here)


def test_one_that_hangs_after_the_word_is_ended_before_the_store_is_taken_back(tmp_path: Path):
    with town(tmp_path, copied=True, SERVING_S="1.5") as here:
        served_before(here)
        took = "        await self.holding.take(self.desk, looked=self._heir is not None)\n"
        here.edit("orchestrator/service.py", took, "        if self._heir is not None:\n            time.sleep(600)\n" + took)
        failed(here, "got the word and did not serve in time")
        serves_on(here)


def test_one_that_dies_three_seconds_after_it_serves_is_replaced_by_the_old_one(here: Town, record_property):
    dies = "        import os, threading; threading.Timer(3.0, os._exit, (9,)).start()\n"
    here.edit("orchestrator/service.py", "        self._say(pipe.SERVING)\n", "        self._say(pipe.SERVING)\n" + dies)
    here.generation(2)
    here.send("while the new one serves")
    begun = here.wait(lambda: here.owner["generation"] == 1 and time.monotonic(), 40, "the first generation serves again")
    assert begun
    assert "exited with status 9" in failed(here, "could not be loaded")
    here.wait(lambda: len(here.served()) == 2, 30)
    assert here.attempts() == 1 and sorted(here.served()) == ["before", "while the new one serves"]
    here.send("after")
    here.wait(lambda: len(here.served()) == 3, 30)


def test_one_that_is_killed_while_it_is_on_probation_is_replaced_within_moments(here: Town, record_property):
    here.touch()
    pid = here.generation(2)
    begun = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    here.send("after the kill")
    seconds = time.monotonic() - begun
    record_property("seconds until a message was accepted", f"{seconds:.3f}")
    assert here.owner["generation"] == 1 and seconds < 15
    here.wait(lambda: sorted(here.served()) == ["after the kill", "before"], 30)
    assert is_zombie(pid)


def test_a_schema_that_dies_after_the_word_leaves_a_store_that_the_old_one_uses(here: Town):
    here.edit(
        "orchestrator/schema.py",
        "\nTABLES = (",
        '\nSTEPS += (("CREATE TABLE extra (x TEXT)", "ALTER TABLE messages ADD COLUMN colour TEXT"),)\n\nTABLES = (',
    )
    here.edit("orchestrator/holding.py", "        await self.sessions.start(self.store)\n", f"        {DIES}")
    assert "exited with status 9" in failed(here, "could not be loaded")
    serves_on(here)
    assert (here.state / "store-schema-1.db").exists(), "no copy was kept"


def test_an_executable_that_vanished_is_told_and_the_service_goes_on(tmp_path: Path):
    base = Path(sys._base_executable if hasattr(sys, "_base_executable") else sys.executable)
    with town(tmp_path, copied=True) as here:
        link = tmp_path / "python"
        link.symlink_to(os.path.realpath(base))
        here.python = str(link)
        site = [path for path in sys.path if path.endswith("site-packages")]
        here.environ["PYTHONPATH"] = os.pathsep.join([here.environ["PYTHONPATH"], *site])
        here.environ["PYTHONHOME"] = sys.base_prefix
        served_before(here)
        here.wait(lambda: here.served() == ["before"], 30)
        link.unlink()
        here.do("restart")
        failed(here, "No such file or directory")
        assert here.attempts() == 0 and here.get("/health")["generation"] == 1
        here.touch()
        assert "cannot be started" in failed(here, "sources changed and cannot be loaded")
        here.send("after", session="s")


def test_a_build_that_works_is_loaded_after_one_that_did_not(here: Town):
    here.edit("orchestrator/holding.py", "        await self.sessions.start(self.store)\n", f"        {DIES}")
    failed(here, "could not be loaded")
    here.edit("orchestrator/holding.py", f"        {DIES}", "        await self.sessions.start(self.store)\n")
    here.generation(2)
    here.send("after")
    here.wait(lambda: sorted(here.served()) == ["after", "before"], 30)

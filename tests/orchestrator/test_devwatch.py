"""The watch over the sources: what settles is tested, what is sound is armed once, what is broken is told once."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from comfy_env.orchestrator import devwatch
from comfy_env.orchestrator.devwatch import Do, Phase, Watch, changed, fingerprint, looked, problem, snapshot
from comfy_env.orchestrator.devwatch import tested as judge
from comfy_env.orchestrator.events import Found
from comfy_env.orchestrator.watching import SourceWatch

from .kit import run, until
from .town import town

BOOT = Watch.of("boot")


def after(watch: Watch, *seen: str) -> tuple[Watch, Do]:
    do = Do.NOTHING
    for state in seen:
        watch, do = looked(watch, state)
    return watch, do


def test_a_fresh_process_sees_no_change():
    assert after(BOOT, "boot", "boot") == (BOOT, Do.NOTHING)


def test_a_change_must_hold_still_for_one_more_look():
    watch, do = after(BOOT, "a")
    assert do is Do.NOTHING and watch.phase is Phase.SETTLING
    assert after(watch, "b")[1] is Do.NOTHING
    assert after(watch, "b", "b")[1] is Do.TEST


def test_a_sound_change_is_armed_once_and_a_broken_one_told_once():
    for sound, expected in ((True, Do.ARM), (False, Do.TELL)):
        watch, do = judge(after(BOOT, "a", "a")[0], "a", sound)
        assert do is expected
        assert after(watch, "a", "a", "a") == (watch, Do.NOTHING)


def test_the_test_of_a_tree_that_changed_meanwhile_says_nothing():
    watch, _ = after(BOOT, "a", "a", "b")
    assert judge(watch, "a", True) == (watch, Do.NOTHING)


def test_a_tree_that_goes_back_to_what_runs_calls_the_restart_off():
    watch, _ = judge(after(BOOT, "a", "a")[0], "a", True)
    assert after(watch, "boot", "boot")[1] is Do.CALL_OFF


def test_every_history_of_looks_arms_only_what_has_settled_differs_and_is_sound(record_property):
    """Three states of the tree (one broken), every history of seven looks, each test answered at once or late."""
    histories = 0
    for seen in itertools.product(("boot", "good", "bad"), repeat=7):
        for late in (False, True):
            histories += 1
            _history(seen, late)
    record_property("histories", histories)


def _history(seen: tuple[str, ...], late: bool) -> None:
    watch, before, testing, armed = BOOT, "boot", "", []
    for state in seen:
        if testing and late:
            watch, do = judge(watch, testing, testing == "good")
            _judged(do, testing, before, armed)
            testing = ""
        watch, do = looked(watch, state)
        assert do is not Do.TEST or (state == before and state != "boot"), (seen, state)
        assert do is not Do.CALL_OFF or (state == before == "boot" and armed), seen
        if do is Do.CALL_OFF:
            armed.clear()
        if do is Do.TEST:
            testing = state
            if not late:
                watch, do = judge(watch, state, state == "good")
                _judged(do, state, state, armed)
                testing = ""
        before = state


def _judged(do: Do, tested_state: str, now: str, armed: list[str]) -> None:
    if do in (Do.ARM, Do.TELL):
        assert tested_state == now and (do is Do.ARM) is (tested_state == "good")
        assert armed[-1:] != [tested_state], "said twice"
        armed.append(tested_state)


@pytest.mark.parametrize("fault", ["tests at once", "arms untested", "arms what is broken"])
def test_a_planted_fault_is_found(fault: str, monkeypatch):
    real = looked

    def wrong(watch: Watch, seen: str) -> tuple[Watch, Do]:
        if fault == "tests at once" and seen != watch.last and seen != watch.boot:
            return replace(watch, last=seen, phase=Phase.TESTING), Do.TEST
        return real(watch, seen)

    monkeypatch.setitem(globals(), "looked", wrong)
    if fault == "arms untested":
        monkeypatch.setitem(globals(), "judge", lambda watch, seen, sound: (watch, Do.ARM))
    if fault == "arms what is broken":
        monkeypatch.setitem(globals(), "judge", lambda watch, seen, sound, real=judge: real(watch, seen, True))
    with pytest.raises(AssertionError):
        for seen in itertools.product(("boot", "good", "bad"), repeat=5):
            for late in (False, True):
                _history(seen, late)


# ---- the disk


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    for name in ("__init__.py", "inner/a.py", "inner/panel.js"):
        (tmp_path / name).write_text("x = 1\n")
    return tmp_path


def test_a_touched_new_or_removed_source_changes_the_fingerprint_and_byte_code_does_not(package: Path):
    states = [fingerprint(snapshot(package))]
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    assert fingerprint(snapshot(package)) == states[0]
    os.utime(package / "inner/a.py", ns=(1, 1))
    states.append(fingerprint(snapshot(package)))
    (package / "inner/b.py").write_text("")
    states.append(fingerprint(snapshot(package)))
    (package / "inner/b.py").unlink()
    (package / "inner/panel.js").unlink()
    states.append(fingerprint(snapshot(package)))
    assert len(set(states)) == 4


def test_what_changed_is_named_and_its_syntax_is_checked_without_writing(package: Path):
    before = snapshot(package)
    (package / "inner/a.py").write_text("def f(:\n")
    assert changed(before, snapshot(package)) == [os.path.join("inner", "a.py")]
    files = sorted(package.rglob("*"))
    assert "SyntaxError" in problem(["inner/a.py"], package) and problem(["__init__.py"], package) == ""
    assert "vanished" in problem(["inner/gone.py"], package)
    assert sorted(package.rglob("*")) == files


def test_what_an_editor_keeps_beside_a_source_is_no_change(package: Path):
    before = fingerprint(snapshot(package))
    (package / "inner/.#a.py").symlink_to("somebody@here.1234")   # that a buffer has changes
    (package / "inner/.a.py.swp.py").write_text("half a line (")
    assert fingerprint(snapshot(package)) == before


def test_a_source_that_cannot_be_read_is_told_and_is_no_failure_of_the_watch(package: Path):
    before = snapshot(package)
    (package / "inner/loop.py").symlink_to("loop.py")
    assert changed(before, snapshot(package)) == [os.path.join("inner", "loop.py")]
    assert "loop.py cannot be read" in problem(["inner/loop.py"], package)


def test_beside_a_successor_nobody_looks(package: Path):
    """It looks for itself: two would test the tree twice and tell of it twice."""
    serves, heard = [True], []

    async def post(event: object) -> None:
        heard.append(event)

    async def test() -> dict:
        return {"ok": True, "problem": ""}

    async def story():
        watch = SourceWatch(snapshot(package), test, post, heard.append, lambda: serves[0], package)
        (package / "inner/a.py").write_text("def f(:\n")
        looking = asyncio.create_task(watch.run(0.001))
        await until(lambda: heard)
        serves[0] = False
        (package / "inner/a.py").write_text("y = 22\n")
        for _ in range(200):
            await asyncio.sleep(0.001)
        assert len(heard) == 1
        serves[0] = True
        await until(lambda: len(heard) == 2)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)

    run(story)
    assert "SyntaxError" in heard[0] and isinstance(heard[1], Found)


def test_an_installed_copy_is_not_watched():
    assert devwatch.is_checkout()
    assert not devwatch.is_checkout(Path("/usr/lib/python3/site-packages/comfy_env"))


# ---- with a real service


def armed_lines(words: str) -> int:
    return words.count("-> armed (Found)")


def test_a_touched_source_is_armed_within_four_seconds(tmp_path: Path, record_property):
    with town(tmp_path, copied=True, DEV_POLL_S="1", MIN_UPTIME_S="600") as here:
        here.start()
        loaded = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        begun = time.monotonic()
        here.touch()
        here.wait(lambda: armed_lines(here.words()), 40, "armed")
        seconds = time.monotonic() - begun
        record_property("seconds", f"{seconds:.2f}")
        print(f"touch to armed: {seconds:.2f} s at a load of {loaded:.1f} per processor")
        assert seconds <= 4.0 * min(3.0, loaded)
        assert here.get("/api/state")["restart"]["waiting"][0].startswith("uptime")


def test_a_broken_tree_is_told_once_and_restarts_nothing(tmp_path: Path):
    with town(tmp_path, copied=True) as here:
        here.start()
        path = here.source("orchestrator/proto.py")
        whole = path.read_text()
        path.write_text(whole[: len(whole) // 2] + "\n(")
        here.wait(lambda: here.notes(), 30, "it is told")
        until = time.monotonic() + 1.0  # ten looks more
        here.wait(lambda: time.monotonic() > until, 5)
        assert len([note for note in here.notes() if "cannot be loaded" in note]) == 1
        assert here.attempts() == 0 and armed_lines(here.words()) == 0
        path.write_text(whole)
        here.generation(2)


def test_testing_and_restarting_leave_the_tree_byte_for_byte_as_it_was(tmp_path: Path):
    with town(tmp_path, copied=True) as here:
        here.start()
        here.source("orchestrator/proto.py").write_text(here.source("orchestrator/proto.py").read_text() + "\n# one line more\n")
        before = here.contents()
        here.generation(2)
        here.session()
        here.send("hello")
        here.wait(lambda: here.served() == ["hello"], 30)
        after = here.contents()
        assert set(after) == set(before), "byte code was written"
        assert [name for name in before if after[name] != before[name]] == []

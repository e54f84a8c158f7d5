"""Restarts under load: no connection is refused or reset, no message is lost or doubled, whoever has it at that moment."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .load import Load, Panel
from .town import town


def sound(state: Path) -> bool:
    with contextlib.closing(sqlite3.connect(state / "store.db")) as db:
        return db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.fixture
def quick_disk(tmp_path: Path) -> Iterator[Path]:
    """A state folder in memory where there is one: hundreds of turns, two commits each, would wait for the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.deadline(400)
@pytest.mark.parametrize("restarts", [3, pytest.param(20, marks=pytest.mark.long)])
def test_dev_restarts_refuse_lose_and_double_nothing(tmp_path: Path, restarts: int, record_property, quick_disk: Path):
    with town(tmp_path, copied=True, state=quick_disk) as here:
        here.start()
        here.session()
        with Load(here) as load, Panel(here) as panel:
            for number in range(restarts):
                here.touch()
                here.generation(number + 2, 60)
                here.wait(lambda number=number: panel.generations[-1] >= number + 2, 20, "the panel is back")
        here.wait(lambda: len(here.served()) >= len(panel.sent), 60, "every message is served")
        here.wait(lambda: all(here.ends().values()), 20, "every turn has ended")
        ends = here.ends()
        figures = {
            "restarts": restarts,
            "requests": load.counts["raw"] + load.counts["kept"],
            "bad": load.bad,
            "messages": len(panel.sent),
            "retried": panel.retried,
            "served": len(here.served()),
            "closes": dict(panel.closes),
            "trouble": len(panel.trouble),
        }
        record_property("figures", str(figures))
        print(figures, load.errors[:5], panel.trouble[:5])
        assert load.bad == {}, load.errors[:10]
        assert panel.trouble == [] and set(panel.closes) <= {1012}
        assert panel.generations == list(range(1, restarts + 2))
        assert sorted(here.served()) == sorted(panel.sent.values()), "lost or doubled"
        assert all(outcome == ["done"] for outcome in ends.values()) and len(ends) == len(panel.sent)
        committed = [event["seq"] for event in here.events()]
        assert panel.events == committed[: len(panel.events)], "an event was missed, shown twice or out of order"
        here.do("stop")
        here.wait(lambda: not here.services(), 20, "all generations end")
        assert sound(here.state)

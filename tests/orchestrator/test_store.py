"""The store: committed before told, fenced by an epoch, upgraded with a copy kept, and what becomes of one that cannot be used."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from comfy_env.orchestrator import messages, opening, schema
from comfy_env.orchestrator.opening import NAME, Damaged, look, open_checked, open_known
from comfy_env.orchestrator.problems import Refused, StaleOwner, StoreClosed, StoreRefused, StoreTrouble
from comfy_env.orchestrator.store import Row, Store, owner

Opened = Callable[..., Store]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    with contextlib.ExitStack() as stack:

        def make(**more) -> Store:
            store = Store.open(open_known(tmp_path), **{"generation": None, "pid": os.getpid(), **more})
            stack.callback(store.close)
            return store

        yield make


def ask(store: Store, job):
    return store.write(job).result(10)


def session(store: Store, id: str = "s", agent: str = "echo") -> None:
    ask(store, lambda t: messages.new_session(t, id, agent, ""))


def accept(store: Store, client: str, body: str = "hello", state: str = messages.QUEUED):
    return ask(store, lambda t: messages.accept(t, "s", client, body, state))


def sound(folder: Path) -> bool:
    with contextlib.closing(sqlite3.connect(folder / NAME)) as db:
        return db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# ---- writing


def test_a_job_is_committed_before_its_asker_hears(opened, tmp_path):
    store = opened()
    session(store)
    with contextlib.closing(sqlite3.connect(tmp_path / NAME)) as other:
        assert other.execute("SELECT id FROM sessions").fetchall() == [("s",)]


def test_people_hear_events_in_order_and_before_the_asker(opened):
    heard: list[Row] = []
    store = opened(committed=heard.extend)
    session(store)
    futures = [store.write(lambda t, n=n: t.event("s", "said", str(n))) for n in range(200)]
    seqs = [future.result(10) for future in futures]
    assert [row.seq for row in heard] == seqs == sorted(seqs)


def test_what_waits_is_committed_together(opened):
    batches: list[int] = []
    store = opened(committed=lambda rows: batches.append(len(rows)))
    session(store)
    held = threading.Event()
    first = store.write(lambda t: held.wait(10))
    futures = [store.write(lambda t: t.event("s", "said")) for _ in range(50)]
    held.set()
    assert [future.result(10) for future in [first, *futures]]
    assert max(batches) >= 50


def test_a_job_that_raises_undoes_itself_alone(opened):
    store = opened()
    session(store)
    held = threading.Event()
    blocker = store.write(lambda t: held.wait(10))

    def bad(t):
        t.event("s", "said", "half")
        raise Refused("no")

    one, two, three = store.write(lambda t: t.event("s", "said", "1")), store.write(bad), store.write(lambda t: t.event("s", "said", "2"))
    held.set()
    assert blocker.result(10) and one.result(10) and three.result(10)
    with pytest.raises(Refused):
        two.result(10)
    assert [row.body for row in ask(store, lambda t: messages.events(t, "s", 0))] == ["1", "2"]


def test_a_transaction_that_fails_tells_every_asker(opened, tmp_path):
    store = opened()
    session(store)
    held = threading.Event()
    first = store.write(lambda t: held.wait(10))
    waiting = [store.write(lambda t: t.event("s", "said")) for _ in range(3)]
    assert first is not None
    with contextlib.closing(sqlite3.connect(tmp_path / NAME, isolation_level=None, timeout=10)) as thief:
        held.set()
        first.result(10)
        thief.execute("BEGIN IMMEDIATE")
        thief.execute("UPDATE owner SET epoch = epoch + 1")
        thief.execute("COMMIT")
    late = store.write(lambda t: t.event("s", "said", "late"))
    with pytest.raises(StaleOwner, match="has taken the store"):
        late.result(10)
    assert all(isinstance(_settled(future), (int, StaleOwner)) for future in waiting)


def test_a_full_disk_is_told_and_passes(opened):
    store = opened()
    session(store)
    ask(store, lambda t: t.db.execute("PRAGMA max_page_count = 1"))   # the system's own answer to a full disk, from now on
    for number in range(3):
        with pytest.raises(StoreTrouble, match="cannot be written: database or disk is full"):
            accept(store, f"c{number}", "x" * 20_000)
    ask(store, messages.sessions)
    assert "disk is full" in store.trouble, "that it can be read means nothing"
    ask(store, lambda t: t.db.execute("PRAGMA max_page_count = 1073741823"))
    assert accept(store, "c1", "x" * 20_000).fresh, "half of what was refused was kept"
    assert store.trouble == ""


def test_a_mistake_in_a_job_is_no_trouble_of_the_disk(opened):
    with pytest.raises(sqlite3.IntegrityError):
        ask(opened(), lambda t: t.db.execute("INSERT INTO sessions VALUES ('s', NULL, '', 0)"))


def _settled(future: Future):
    return future.exception(10) or future.result(10)


def test_a_former_owner_cannot_write_into_its_successors_store(opened):
    old = opened()
    session(old)
    new = opened()
    assert new.epoch == old.epoch + 1
    with pytest.raises(StaleOwner):
        accept(old, "c1")
    assert accept(new, "c1").fresh


def test_closing_commits_what_was_accepted_and_refuses_the_rest(opened, tmp_path):
    store = opened()
    session(store)
    futures = [store.write(lambda t, n=n: messages.accept(t, "s", f"c{n}", "x", messages.QUEUED)) for n in range(300)]
    store.close()
    assert all(future.result(0).fresh for future in futures)
    with pytest.raises(StoreClosed):
        store.write(lambda t: None)
    assert sound(tmp_path)


def test_an_asker_that_goes_away_costs_nobody_else_an_answer(opened):
    store = opened()
    begun, go_on = threading.Event(), threading.Event()

    def slow(t):
        begun.set()
        assert go_on.wait(10)

    first = store.write(slow)
    assert begun.wait(10)
    gone, other = store.write(lambda t: t.event("s", "gone")), store.write(lambda t: t.event("s", "other"))
    gone.cancel()
    go_on.set()
    assert first.result(10) is None and other.result(10)
    assert store.write(lambda t: t.db.execute("SELECT COUNT(*) FROM events").fetchone()[0]).result(10) == 2, "what was put in is done"


def test_only_this_user_can_read_it(opened, tmp_path):
    opened()
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600


def test_a_fresh_start_takes_the_next_generation_and_a_handover_the_given_one(opened, tmp_path):
    opened()
    assert owner(tmp_path) == (1, 1)
    opened()
    assert owner(tmp_path) == (2, 2)
    opened(generation=7)
    assert owner(tmp_path) == (3, 7)


def test_a_failed_first_job_leaves_the_store_to_its_owner(opened):
    old = opened()

    def bad(t):
        raise Refused("no")

    with pytest.raises(Refused):
        opened(first=bad)
    session(old)


# ---- messages


def test_the_same_client_id_is_the_same_message(opened):
    store = opened()
    session(store)
    first, again = accept(store, "c1", "one"), accept(store, "c1", "two")
    assert (first.fresh, again.fresh, again.seq) == (True, False, first.seq)
    assert [m.body for m in ask(store, messages.waiting)] == ["one"]


def test_a_turn_that_ran_when_the_owner_died_is_undetermined_or_run_again_where_that_is_safe(opened):
    store = opened()
    session(store, "s", "echo")
    session(store, "safe", "echo-safe")
    mine = accept(store, "c1")
    safe = ask(store, lambda t: messages.accept(t, "safe", "c2", "x", messages.QUEUED))
    assert ask(store, lambda t: messages.begin(t, mine.seq)) and ask(store, lambda t: messages.begin(t, safe.seq))
    after = opened(first=lambda t: messages.recover(t, {"echo-safe"}))
    assert ask(after, lambda t: messages.message_states(t, "s")) == {"c1": messages.UNDETERMINED}
    assert [m.seq for m in ask(after, messages.waiting)] == [safe.seq]
    assert ask(after, lambda t: [row.kind for row in messages.events(t, None, 0)])[-2:] == [messages.UNDETERMINED, "again"]


def test_a_message_is_begun_once(opened):
    store = opened()
    session(store)
    seq = accept(store, "c1").seq
    assert ask(store, lambda t: messages.begin(t, seq)) is not None
    assert ask(store, lambda t: messages.begin(t, seq)) is None


def test_held_messages_are_queued_in_order(opened):
    store = opened()
    session(store)
    seqs = [accept(store, f"c{n}", state=messages.HELD).seq for n in range(5)]
    assert ask(store, lambda t: messages.flush(t, agents=["other"])) == []
    assert ask(store, lambda t: messages.flush(t)) == seqs


def test_old_events_are_forgotten_and_messages_are_not(opened, monkeypatch):
    monkeypatch.setattr(messages, "ALWAYS_KEPT", 0)
    now = [1000.0]
    store = opened(clock=lambda: now[0])
    session(store)
    accept(store, "c1")
    now[0] += 22 * 86_400
    ask(store, lambda t: t.event("s", "said", "new"))
    assert ask(store, lambda t: messages.prune(t, 21, 200)) == 1
    assert not accept(store, "c1").fresh


def test_a_clock_that_was_set_wrong_does_not_cost_what_tabs_resume_from(opened):
    now = [0.0]   # a machine whose clock starts in 1970 and is then set right
    store = opened(clock=lambda: now[0])
    session(store)
    accept(store, "c1")
    now[0] = 1.8e9
    assert ask(store, lambda t: messages.prune(t, 21, 200)) == 0
    assert len(ask(store, lambda t: messages.events(t, "s", 0))) == 1


def test_the_oldest_events_go_when_there_is_too_much(opened):
    store = opened()
    session(store)
    for batch in range(4):
        ask(store, lambda t, batch=batch: [t.event("s", "said", f"{batch}" * (1 << 18)) for _ in range(2)])
    assert ask(store, lambda t: messages.prune(t, 21, 1)) > 0
    rows = ask(store, lambda t: messages.events(t, "s", 0))
    assert rows and sum(len(row.body) for row in rows) <= 1 << 20 and rows[-1].body[0] == "3"


# ---- opening


@pytest.fixture
def newer(monkeypatch) -> None:
    """The next version of this package: one more step, which the version before can live with."""
    step = ("ALTER TABLE sessions ADD COLUMN colour TEXT", "CREATE TABLE extra (x TEXT)")
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, step))


def test_a_newer_schema_is_usable_by_the_version_before(opened, tmp_path, monkeypatch):
    old = opened()
    session(old)
    old.close()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STEPS", (*schema.STEPS, ("CREATE TABLE extra (x TEXT)",)))
        opened().close()
        assert look(tmp_path) == len(schema.STEPS)
    again = opened()
    assert look(tmp_path) == len(schema.STEPS) + 1
    assert accept(again, "c1").fresh
    assert ask(again, messages.sessions)[0]["id"] == "s"


def test_a_copy_is_kept_before_the_schema_changes(opened, tmp_path, newer, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STEPS", schema.STEPS[:-1])
        old = opened()
        session(old)
        old.close()
    opened()
    with contextlib.closing(sqlite3.connect(tmp_path / f"store-schema-{len(schema.STEPS) - 1}.db")) as copy:
        assert copy.execute("SELECT id FROM sessions").fetchall() == [("s",)]


def test_an_upgrade_that_fails_changes_nothing(opened, tmp_path, monkeypatch):
    opened().close()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STEPS", (*schema.STEPS, ("CREATE TABLE extra (x TEXT)", "NO SQL AT ALL")))
        with pytest.raises(sqlite3.OperationalError):
            opened()
    assert look(tmp_path) == len(schema.STEPS) and owner(tmp_path) == (1, 1)


def test_a_store_only_a_newer_version_can_read_is_refused_and_left_alone(opened, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STEPS", (*schema.STEPS, ("CREATE TABLE extra (x TEXT)",)))
        patch.setattr(schema, "READABLE_BY", len(schema.STEPS))
        opened().close()
    before = (tmp_path / NAME).read_bytes()
    for act in (look, open_known, open_checked):
        with pytest.raises(StoreRefused, match="newer version"):
            act(tmp_path)
    assert (tmp_path / NAME).read_bytes() == before


def test_an_unreadable_store_is_tried_and_then_refused(tmp_path, monkeypatch):
    (tmp_path / NAME).mkdir()
    monkeypatch.setattr(opening, "PATIENCE", 0.2)
    with pytest.raises(StoreRefused, match="cannot be read") as caught:
        open_checked(tmp_path)
    assert not isinstance(caught.value, Damaged) and (tmp_path / NAME).is_dir()


@pytest.mark.parametrize("damage", ["no database at all", "a page of nonsense"])
def test_a_damaged_store_is_set_aside_and_what_can_be_read_is_saved(opened, tmp_path, damage):
    store = opened()
    session(store)
    for n in range(2000):
        store.write(lambda t, n=n: messages.accept(t, "s", f"c{n}", "x" * 200, messages.QUEUED))
    store.close()
    path = tmp_path / NAME
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(0 if damage.startswith("no") else size * 2 // 3)
        file.write(b"\x5a" * 8192)
    db, remarks = open_checked(tmp_path)
    again = Store.open(db, generation=None, pid=1)
    kept = len(ask(again, messages.waiting))
    again.close()
    assert "damaged" in remarks[0] and "set aside" in remarks[1]
    assert len(list(tmp_path.glob("store-damaged-*.db"))) == 1 and sound(tmp_path)
    assert kept == 0 if damage.startswith("no") else 0 < kept


@pytest.fixture
def cut_off(opened, tmp_path: Path) -> Path:
    """A store whose owner was killed while it wrote: pages of an open transaction are on disk, its journal is there."""
    store = opened()
    session(store)
    store.close()
    folder = tmp_path / "cut off"
    folder.mkdir()
    with contextlib.closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = TRUNCATE")
        db.execute("PRAGMA cache_size = 5")
        db.execute("BEGIN IMMEDIATE")
        for number in range(500):
            db.execute("INSERT INTO sessions VALUES (?, 'echo', ?, 0)", (f"x{number}", "t" * 500))
        for name in (NAME, f"{NAME}-journal"):
            shutil.copy(tmp_path / name, folder / name)
        db.execute("ROLLBACK")
    assert (folder / f"{NAME}-journal").stat().st_size > 0
    return folder


def test_a_store_whose_owner_was_killed_in_the_middle_of_writing_is_mended_at_the_next_start(cut_off: Path):
    db, remarks = open_checked(cut_off)
    with contextlib.closing(db):
        assert remarks == () and db.execute("SELECT id FROM sessions").fetchall() == [("s",)]
    assert sound(cut_off)


def test_looking_changes_nothing(opened, tmp_path):
    store = opened()
    session(store)
    before = (tmp_path / NAME).stat().st_mtime_ns, (tmp_path / NAME).read_bytes()
    assert look(tmp_path) == len(schema.STEPS)
    assert ((tmp_path / NAME).stat().st_mtime_ns, (tmp_path / NAME).read_bytes()) == before
    assert look(tmp_path / "nowhere") == 0


def test_a_successor_looks_while_its_predecessor_writes(opened, tmp_path):
    store = opened()
    session(store)
    futures = [store.write(lambda t: t.event("s", "said")) for _ in range(400)]
    assert look(tmp_path) == len(schema.STEPS)
    assert all(future.result(10) for future in futures)

"""Opening a store: looking without changing, upgrading with a copy kept, and what to do with one that cannot be used.

Damaged is not unreadable is not newer: what is damaged is set aside and searched for what is left, with a word about
it; what cannot be read is tried for a while and then refused; what a newer version wrote is refused at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from comfy_env.orchestrator import schema
from comfy_env.orchestrator.problems import StoreRefused

log = logging.getLogger(__name__)

NAME = "store.db"
BUSY = 5.0  # seconds a statement waits for another process's transaction
PATIENCE = 3.0  # seconds an unreadable store is tried for
DISK = "see that the disk works and is not full"
_AGAIN = 0.1
_DAMAGED = (11, 26)  # SQLITE_CORRUPT, SQLITE_NOTADB

T = TypeVar("T")


class Damaged(StoreRefused):
    """The file is no database, or not a whole one."""


USE, MEND, READ = "rwc", "rw", "ro"
"""What a connection is for: to own the store, to take back what a killed owner left half written and look, to look only."""


def connect(path: Path, mode: str = USE) -> sqlite3.Connection:
    """Return a connection that any one thread at a time may use; transactions are the caller's."""
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False)
    try:
        if mode == USE:
            os.chmod(path, 0o600)
            db.execute("PRAGMA journal_mode = TRUNCATE")
            db.execute("PRAGMA synchronous = FULL")
        return db
    except BaseException:
        db.close()
        raise


def look(folder: Path, *, ours: bool = False) -> int:
    """Check a store without changing it and return its schema, 0 where there is none; raises StoreRefused.

    `ours`: nobody else has it, so what a killed owner left half written is taken back first.
    """
    path = folder / NAME
    if not path.exists():
        return 0
    return _readable(path, lambda: _look(path, MEND if ours else READ))


def _look(path: Path, mode: str) -> int:
    with contextlib.closing(connect(path, mode)) as db:
        _must_be_ours(db, path)
        found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise Damaged(f"the store {path} is damaged: {found}")
        return schema.version(db)


def open_checked(folder: Path) -> tuple[sqlite3.Connection, tuple[str, ...]]:
    """Return a connection to a store that was looked at, made anew where it was damaged, and what to tell people."""
    remarks: tuple[str, ...] = ()
    try:
        look(folder, ours=True)
    except Damaged as problem:
        remarks = (str(problem.message), salvage(folder))
    return open_known(folder), remarks


def open_known(folder: Path) -> sqlite3.Connection:
    """Return a connection to a store that was looked at a moment ago; raises StoreRefused."""
    path = folder / NAME
    return _readable(path, lambda: _open(path))


def _open(path: Path) -> sqlite3.Connection:
    db = connect(path)
    try:
        _must_be_ours(db, path)
        if 0 < schema.version(db) < len(schema.STEPS):
            _keep_copy(db, path)
        return db
    except BaseException:
        db.close()
        raise


def _must_be_ours(db: sqlite3.Connection, path: Path) -> None:
    wanted = schema.readable_by(db)
    if wanted > len(schema.STEPS):
        raise StoreRefused(
            f"the store {path} was written by a newer version (schema {schema.version(db)}; this one knows {len(schema.STEPS)})",
            hint="start the newer version, or name another folder in COMFY_ENV_ORCH_STATE_DIR",
        )


def _keep_copy(db: sqlite3.Connection, path: Path) -> None:
    """Copy the store before its schema changes, so that even a wrong step can be undone by hand."""
    copy = path.with_name(f"store-schema-{schema.version(db)}.db")
    copy.unlink(missing_ok=True)
    db.execute("VACUUM INTO ?", (str(copy),))
    os.chmod(copy, 0o600)


def _readable(path: Path, act: Callable[[], T]) -> T:
    """Act, again and again for a while if the system does not let us; a damaged store is told at once."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return act()
        except sqlite3.DatabaseError as problem:
            if _is_damage(problem):
                raise Damaged(f"the store {path} is damaged: {problem}") from problem
            trouble: Exception = problem
        except OSError as problem:
            trouble = problem
        if time.monotonic() > until:
            raise StoreRefused(f"the store {path} cannot be read: {trouble}", hint=DISK) from trouble
        time.sleep(_AGAIN)


def _is_damage(problem: sqlite3.DatabaseError) -> bool:
    code = getattr(problem, "sqlite_errorcode", None)  # since Python 3.11
    if code is not None:
        return code & 0xFF in _DAMAGED
    return any(word in str(problem) for word in ("malformed", "not a database"))


# ---------------------------------------------------------------- what is damaged


def salvage(folder: Path) -> str:
    """Set a damaged store aside, make a new one, copy what can still be read; return what to tell people."""
    path = folder / NAME
    aside = path.with_name(f"store-damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.db")
    os.rename(path, aside)
    for suffix in ("-journal", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}{suffix}", f"{aside}{suffix}")
    saved = _copy(aside, path)
    told = ", ".join(f"{count} {table}" for table, count in saved.items() if count) or "nothing"
    return f"it was set aside as {aside.name}; saved from it: {told}"


def _copy(aside: Path, path: Path) -> dict[str, int]:
    saved: dict[str, int] = {}
    with contextlib.closing(connect(path)) as new:
        new.execute("BEGIN IMMEDIATE")
        schema.upgrade(new)
        with (
            contextlib.suppress(sqlite3.DatabaseError),
            contextlib.closing(connect(aside, READ)) as old,
        ):  # nothing readable at all
            for table in schema.TABLES:
                saved[table] = _copy_table(old, new, table)
        new.execute("COMMIT")
    return saved


def _copy_table(old: sqlite3.Connection, new: sqlite3.Connection, table: str) -> int:
    columns = [row[1] for row in new.execute(f"PRAGMA table_info({table})")]
    count = 0
    for row in _rows(old, table, columns):
        with contextlib.suppress(sqlite3.DatabaseError):  # a row that does not fit any more
            new.execute(f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", row)
            count += 1
    return count


def _rows(old: sqlite3.Connection, table: str, columns: list[str]) -> Iterator[tuple]:
    """Yield a table's rows up to the first page that cannot be read."""
    with contextlib.suppress(sqlite3.DatabaseError):  # the rest is lost: how many were saved is told
        yield from old.execute(f"SELECT {', '.join(columns)} FROM {table}")

"""The store: one writer thread, committed before anybody is told, fenced by an epoch.

What waits when a transaction begins is committed together, each job behind its own savepoint. Every transaction first
sees that the epoch is still ours: a process that lost the store can never write into its successor's.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comfy_env.orchestrator import opening, schema
from comfy_env.orchestrator.problems import StaleOwner, StoreClosed, StoreTrouble

MOST_TOGETHER = 500


@dataclass(frozen=True)
class Row:
    """An event as it was committed: what tabs are shown and replay from."""

    seq: int
    session: str
    message: int | None
    kind: str
    body: str
    at: float


@dataclass
class Transaction:
    """What a job works with: the connection, the time and the owner's epoch; `event` appends what people will see."""

    db: sqlite3.Connection
    epoch: int
    now: float
    rows: list[Row] = field(default_factory=list)

    def event(self, session: str, kind: str, body: str = "{}", message: int | None = None) -> int:
        """Append an event and return its number."""
        given = (session, message, kind, body, self.now)
        cursor = self.db.execute("INSERT INTO events (session, message, kind, body, at) VALUES (?, ?, ?, ?, ?)", given)
        seq = int(cursor.lastrowid or 0)
        self.rows.append(Row(seq, *given))
        return seq


Job = Callable[[Transaction], Any]


class Store:
    """Use `Store.open`. `write` and `close` are for any thread; `committed` hears each transaction's events, in order, on the writer.

    ``trouble`` says why the last transaction could not be committed, '' where it could.
    """

    def __init__(self, db: sqlite3.Connection, epoch: int, committed: Callable[[list[Row]], None], clock: Callable[[], float]) -> None:
        self.epoch = epoch
        self.trouble = ""
        self._db = db
        self._committed = committed
        self._clock = clock
        self._jobs: queue.SimpleQueue[tuple[Job, Future[Any]] | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="comfy-env store", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        db: sqlite3.Connection,
        *,
        generation: int | None,
        pid: int,
        first: Job = lambda transaction: None,
        committed: Callable[[list[Row]], None] = lambda rows: None,
        clock: Callable[[], float] = time.time,
    ) -> Store:
        """Take the store: upgrade it, raise the epoch and run `first`, all in one transaction.

        `generation` None takes the one after the last owner's. Closes the connection if it fails.
        """
        transaction = Transaction(db, 0, clock())
        try:
            db.execute("BEGIN IMMEDIATE")
            schema.upgrade(db)
            before = db.execute("SELECT epoch, generation FROM owner").fetchone() or (0, 0)
            transaction.epoch = before[0] + 1
            owner = (transaction.epoch, before[1] + 1 if generation is None else generation, pid, transaction.now)
            db.execute("INSERT OR REPLACE INTO owner VALUES (1, ?, ?, ?, ?)", owner)
            first(transaction)
            db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
        store = cls(db, transaction.epoch, committed, clock)
        if transaction.rows:
            committed(transaction.rows)
        return store

    def write(self, job: Job) -> Future[Any]:
        """Run a job in the next transaction; the future holds its value once that is committed."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()   # an asker that goes away takes nothing back: others wait for the same transaction
        with self._gate:
            if self._closed:
                raise StoreClosed("the store was given up")
            self._jobs.put((job, future))
        return future

    def close(self) -> None:
        """Commit what was accepted and close; idempotent. Raises nothing: what could not be committed is in its future."""
        with self._gate:
            first, self._closed = not self._closed, True
            if first:
                self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        with contextlib.closing(self._db):
            while batch := self._batch():
                self._commit(batch)

    def _batch(self) -> list[tuple[Job, Future[Any]]]:
        """Wait for a job and return all that wait by then; nothing at the end."""
        batch: list[tuple[Job, Future[Any]]] = []
        item = self._jobs.get()
        while item is not None:
            batch.append(item)
            if len(batch) >= MOST_TOGETHER or self._jobs.empty():
                return batch
            item = self._jobs.get()
        if batch:
            self._jobs.put(None)
        return batch

    def _commit(self, batch: list[tuple[Job, Future[Any]]]) -> None:
        transaction, before = Transaction(self._db, self.epoch, self._clock()), self._db.total_changes
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._must_be_ours()
            outcomes = [self._attempt(job, transaction) for job, _ in batch]
            self._db.execute("COMMIT")
        except Exception as error:  # nothing of this transaction is in the store: every asker is told why
            self._undo()
            told = _told(error)
            self.trouble = told.message if isinstance(told, StoreTrouble) else ""
            for _, future in batch:
                future.set_exception(told)
            return
        if self._db.total_changes != before:   # to read works on a full disk too
            self.trouble = ""
        if transaction.rows:
            self._committed(transaction.rows)
        for (_, future), (value, problem) in zip(batch, outcomes, strict=True):
            future.set_result(value) if problem is None else future.set_exception(problem)

    def _must_be_ours(self) -> None:
        row = self._db.execute("SELECT epoch, pid FROM owner").fetchone()
        if row[0] != self.epoch:
            raise StaleOwner(f"process {row[1]} has taken the store (epoch {row[0]}, ours is {self.epoch})")

    def _attempt(self, job: Job, transaction: Transaction) -> tuple[Any, Exception | None]:
        """Run one job behind a savepoint: what it raises undoes it alone and reaches its asker."""
        kept = len(transaction.rows)
        self._db.execute("SAVEPOINT job")
        try:
            value, problem = job(transaction), None
        except Exception as error:  # the asker's own: handed to its future
            if not self._db.in_transaction:  # the disk is full: sqlite has undone all of it
                raise
            self._db.execute("ROLLBACK TO job")
            del transaction.rows[kept:]
            value, problem = None, _told(error)
        self._db.execute("RELEASE job")
        return value, problem

    def _undo(self) -> None:
        if self._db.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # the connection is closed with the transaction in it
                self._db.execute("ROLLBACK")


def _told(error: Exception) -> Exception:
    """Return what an asker is told: of the disk's own trouble, that it may pass."""
    mistakes = sqlite3.IntegrityError | sqlite3.ProgrammingError | sqlite3.InterfaceError | sqlite3.DataError
    if not isinstance(error, sqlite3.Error) or isinstance(error, mistakes):
        return error
    trouble = StoreTrouble(f"the store cannot be written: {error}", hint=opening.DISK)
    trouble.__cause__ = error
    return trouble


def owner(folder: Path) -> tuple[int, int] | None:
    """Return epoch and generation of a store's last owner, None where there is none."""
    path = folder / opening.NAME
    if not path.exists():
        return None
    with contextlib.closing(opening.connect(path, opening.READ)) as db:
        return db.execute("SELECT epoch, generation FROM owner").fetchone() if schema.version(db) else None

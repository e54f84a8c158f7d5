"""What is written about messages and turns, each function one job of a transaction.

A message is queued or held, then running, then done, failed or undetermined. The turn's start is committed before the
agent is asked, its end with the last event, so a process that dies at any boundary leaves either a message that has not
begun or one whose outcome nobody knows, and that is what is shown.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from comfy_env.orchestrator.problems import Refused
from comfy_env.orchestrator.store import Row, Transaction

QUEUED, HELD, RUNNING, DONE, FAILED, UNDETERMINED = "queued", "held", "running", "done", "failed", "undetermined"
ALWAYS_KEPT = 1000
SERVICE = ""
"""The session of events that belong to none."""


@dataclass(frozen=True)
class Accepted:
    """A committed message. ``fresh`` is False for one that was there already: it was sent again."""

    seq: int
    state: str
    fresh: bool


@dataclass(frozen=True)
class Message:
    seq: int
    session: str
    agent: str
    body: str
    state: str


def new_session(t: Transaction, id: str, agent: str, title: str) -> dict[str, Any]:
    """Make a session; one that is there already is returned as it is."""
    t.db.execute("INSERT OR IGNORE INTO sessions VALUES (?, ?, ?, ?)", (id, agent, title, t.now))
    return _session(t.db.execute("SELECT id, agent, title, created FROM sessions WHERE id = ?", (id,)).fetchone())


def _session(row: tuple) -> dict[str, Any]:
    return {"id": row[0], "agent": row[1], "title": row[2], "created": row[3]}


def sessions(t: Transaction) -> list[dict[str, Any]]:
    return [_session(row) for row in t.db.execute("SELECT id, agent, title, created FROM sessions ORDER BY created")]


def accept(t: Transaction, session: str, client: str, body: str, state: str) -> Accepted:
    """Commit a message under the client's own id; the same id again is the same message."""
    before = t.db.execute("SELECT seq, state FROM messages WHERE session = ? AND client = ?", (session, client)).fetchone()
    if before is not None:
        return Accepted(before[0], before[1], False)
    if t.db.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone() is None:
        raise Refused(f"there is no session {session!r}")
    given = (session, client, body, state, t.now)
    cursor = t.db.execute("INSERT INTO messages (session, client, body, state, accepted) VALUES (?, ?, ?, ?, ?)", given)
    seq = int(cursor.lastrowid or 0)
    t.event(session, "message", json.dumps({"text": body, "client": client, "state": state}), seq)
    return Accepted(seq, state, True)


def begin(t: Transaction, seq: int) -> int | None:
    """Commit that a queued message's turn begins and return the turn's number; None if it is not queued any more."""
    if not _move(t.db, seq, (QUEUED,), RUNNING):
        return None
    cursor = t.db.execute("INSERT INTO turns (message, epoch, state, started) VALUES (?, ?, ?, ?)", (seq, t.epoch, RUNNING, t.now))
    t.event(_session_of(t.db, seq), "turn", "{}", seq)
    return int(cursor.lastrowid or 0)


def said(t: Transaction, seq: int, body: str) -> int:
    """Append something an agent said."""
    return t.event(_session_of(t.db, seq), "said", body, seq)


def end(t: Transaction, turn: int, seq: int, state: str, body: str) -> None:
    """Commit a turn's end with its last event."""
    t.db.execute("UPDATE turns SET state = ?, ended = ? WHERE id = ?", (state, t.now, turn))
    _move(t.db, seq, (RUNNING,), state)
    t.event(_session_of(t.db, seq), state, body, seq)


def flush(t: Transaction, agents: Collection[str] | None = None, session: str | None = None) -> list[int]:
    """Queue what was held, in order, of some agents or one session."""
    moved = [
        message.seq
        for message in _in_state(t.db, HELD)
        if (agents is None or message.agent in agents) and session in (None, message.session)
    ]
    for seq in moved:
        _move(t.db, seq, (HELD,), QUEUED)
        t.event(_session_of(t.db, seq), "queued", "{}", seq)
    return moved


def recover(t: Transaction, replay_safe: Collection[str]) -> None:
    """Judge the turns of owners that are gone: run again where the agent says that is safe, else undetermined."""
    for message in _in_state(t.db, RUNNING):
        again = message.agent in replay_safe
        outcome = "again" if again else UNDETERMINED
        t.db.execute("UPDATE turns SET state = ?, ended = ? WHERE message = ? AND state = ?", (UNDETERMINED, t.now, message.seq, RUNNING))
        _move(t.db, message.seq, (RUNNING,), QUEUED if again else UNDETERMINED)
        t.event(message.session, outcome, json.dumps({"why": "the service ended while this turn ran"}), message.seq)


def waiting(t: Transaction) -> list[Message]:
    """Return every message that is queued or held, in order."""
    return sorted([*_in_state(t.db, QUEUED), *_in_state(t.db, HELD)], key=lambda message: message.seq)


def events(t: Transaction, session: str | None, after: int, limit: int = 1000) -> list[Row]:
    """Return what was committed after an event: of one session and of the service itself, or all."""
    where, given = ("session IN (?, ?) AND ", (session, SERVICE)) if session is not None else ("", ())
    query = f"SELECT seq, session, message, kind, body, at FROM events WHERE {where}seq > ? ORDER BY seq LIMIT ?"
    return [Row(*row) for row in t.db.execute(query, (*given, after, limit))]


def last_event(t: Transaction) -> int:
    return int(t.db.execute("SELECT COALESCE(MAX(seq), 0) FROM events").fetchone()[0])


def message_states(t: Transaction, session: str) -> dict[str, str]:
    """Return the state of each of a session's messages by the client's id."""
    return dict(t.db.execute("SELECT client, state FROM messages WHERE session = ? ORDER BY seq", (session,)))


def prune(t: Transaction, days: float, mib: float) -> int:
    """Forget the oldest events beyond age and size; messages stay, so that none is ever taken for a new one.

    By age the last ones stay whatever their time: a clock that was set wrong must not cost what tabs resume from.
    """
    aged = "DELETE FROM events WHERE at < ? AND seq <= (SELECT MAX(seq) FROM events) - ?"
    removed = t.db.execute(aged, (t.now - days * 86_400, ALWAYS_KEPT)).rowcount
    size = t.db.execute("SELECT COALESCE(SUM(LENGTH(body)) + 64 * COUNT(*), 0), COUNT(*) FROM events").fetchone()
    most = mib * (1 << 20)
    if size[0] > most:
        share = int(size[1] * (1 - 0.8 * most / size[0])) + 1
        oldest = "SELECT seq FROM events ORDER BY seq LIMIT ?"
        removed += t.db.execute(f"DELETE FROM events WHERE seq IN ({oldest})", (share,)).rowcount
    return removed


def _in_state(db: sqlite3.Connection, state: str) -> list[Message]:
    query = """SELECT m.seq, m.session, s.agent, m.body, m.state FROM messages m JOIN sessions s ON s.id = m.session
               WHERE m.state = ? ORDER BY m.seq"""
    return [Message(*row) for row in db.execute(query, (state,))]


def _move(db: sqlite3.Connection, seq: int, before: Sequence[str], after: str) -> bool:
    marks = ", ".join("?" for _ in before)
    return db.execute(f"UPDATE messages SET state = ? WHERE seq = ? AND state IN ({marks})", (after, seq, *before)).rowcount == 1


def _session_of(db: sqlite3.Connection, seq: int) -> str:
    return db.execute("SELECT session FROM messages WHERE seq = ?", (seq,)).fetchone()[0]

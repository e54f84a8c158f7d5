"""The store's tables and how an older store becomes a newer one.

Every step only adds, so the version before reads and writes what a newer one made: a replacement that fails after it
was given the store costs nothing. A step that could not keep that promise would raise `READABLE_BY`.
"""

from __future__ import annotations

import sqlite3

READABLE_BY = 1
"""The oldest schema whose code can use a store that this code has written."""

STEPS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        """CREATE TABLE owner (
            id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, generation INTEGER NOT NULL,
            pid INTEGER NOT NULL, since REAL NOT NULL
        )""",
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, agent TEXT NOT NULL, title TEXT NOT NULL, created REAL NOT NULL) WITHOUT ROWID",
        """CREATE TABLE messages (
            seq INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL REFERENCES sessions(id), client TEXT NOT NULL,
            body TEXT NOT NULL, state TEXT NOT NULL, accepted REAL NOT NULL, UNIQUE (session, client)
        )""",
        "CREATE INDEX messages_by_state ON messages (state, seq)",
        """CREATE TABLE turns (
            id INTEGER PRIMARY KEY AUTOINCREMENT, message INTEGER NOT NULL REFERENCES messages(seq), epoch INTEGER NOT NULL,
            state TEXT NOT NULL, started REAL NOT NULL, ended REAL
        )""",
        "CREATE INDEX turns_by_state ON turns (state)",
        """CREATE TABLE events (
            seq INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, message INTEGER,
            kind TEXT NOT NULL, body TEXT NOT NULL, at REAL NOT NULL
        )""",
        "CREATE INDEX events_by_session ON events (session, seq)",
        """CREATE TABLE renders (
            prompt TEXT PRIMARY KEY, state TEXT NOT NULL, seen REAL NOT NULL, ended REAL
        ) WITHOUT ROWID""",
        """CREATE TABLE updates (
            id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, target TEXT NOT NULL,
            outcome TEXT NOT NULL, reason TEXT NOT NULL, at REAL NOT NULL
        )""",
        "CREATE TABLE devices (digest TEXT PRIMARY KEY, name TEXT NOT NULL, created REAL NOT NULL) WITHOUT ROWID",
    ),
)

TABLES = ("meta", "sessions", "messages", "turns", "events", "renders", "updates", "devices")
"""What a damaged store is searched for; the owner is not: it is made anew."""


def version(db: sqlite3.Connection) -> int:
    """Return the schema of a store, 0 for an empty file."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def readable_by(db: sqlite3.Connection) -> int:
    """Return the oldest schema whose code may use a store; 0 for an empty file."""
    if not version(db):
        return 0
    row = db.execute("SELECT value FROM meta WHERE key = 'readable_by'").fetchone()
    return int(row[0]) if row else version(db)


def upgrade(db: sqlite3.Connection) -> None:
    """Add what a store lacks, inside the caller's transaction; a newer store stays as it is."""
    present = version(db)
    for step in STEPS[present:]:
        for statement in step:
            db.execute(statement)
    if present < len(STEPS):
        db.execute(f"PRAGMA user_version = {len(STEPS)}")
        db.execute("INSERT OR REPLACE INTO meta VALUES ('readable_by', ?)", (str(READABLE_BY),))

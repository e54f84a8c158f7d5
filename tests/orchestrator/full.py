"""The service as a program whose disk is full while a file is there: no transaction can then be committed or begun.

Where another file is there, a successor's taking of the store fills the disk.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

from comfy_env.orchestrator import pipe
from comfy_env.orchestrator.__main__ import main
from comfy_env.orchestrator.store import Store, Transaction

FLAG = Path(os.environ.get("FULL_DISK", os.devnull) + ".full")


FILLS = FLAG.with_suffix(".fills")
HEIR = pipe.GENERATION in os.environ


def full() -> None:
    if FLAG.exists():
        raise sqlite3.OperationalError("database or disk is full")


def plant() -> None:
    ours, made = Store._must_be_ours, Transaction.__init__

    def must_be_ours(self: Store) -> None:
        ours(self)
        full()

    def init(self: Transaction, db: sqlite3.Connection, epoch: int, now: float) -> None:
        made(self, db, epoch, now)
        if not epoch:   # the transaction that takes the store
            if HEIR and FILLS.exists():
                FILLS.rename(FLAG)
            full()

    Store._must_be_ours, Transaction.__init__ = must_be_ours, init


plant()

if __name__ == "__main__":
    sys.exit(main())

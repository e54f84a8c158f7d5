"""What a sweep does with one worker's run folder: the decision table, without acting.

===========================================  ==========================================
what is found                                what is done
===========================================  ==========================================
the host lives, or cannot be told            nothing (never asked here)
no record                                    litter: it was never started
record that is no regular file               skip, and never open it
record unreadable, its lock free             litter
record unreadable, its lock held             skip
schema of a later version                    skip
record of another host                       skip
another boot of the machine                  litter: nothing of it can run
another PID namespace                        skip: its numbers mean nothing here
lock held by somebody without a number here  skip
lock held by init, by us or by our group     skip
lock held by a process that is ending        look again soon: its environment is gone before its lock
lock held by a process without the nonces    skip
lock held by a process with both nonces      end it and everybody who carries them
lock held by a child of the zygote that the  the same: it does not carry its own nonce yet
record names, with that one's nonces
lock free                                    end everybody who carries both nonces
===========================================  ==========================================
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from comfy_env.process import locks, procs, records


class Act(enum.Enum):
    SKIP = "skip"
    LITTER = "litter"
    END = "end"
    AGAIN = "again"


@dataclass(frozen=True)
class Verdict:
    """``worker`` is the living worker's number, 0 if only descendants may be left; ``record`` is there for END."""

    act: Act
    why: str
    record: records.Record | None = None
    worker: int = 0


def judge(folder: Path, host_nonce: str) -> Verdict:
    """Return what to do with a worker's run folder, whose host is known to be dead."""
    path = folder / records.NAME
    try:
        holder = locks.query(path)
        record = records.read(path)
    except FileNotFoundError:
        return Verdict(Act.LITTER, "it was never started")
    except records.LaterSchema as error:
        return Verdict(Act.SKIP, str(error))
    except records.Unreadable as error:
        return Verdict(Act.LITTER if holder.free else Act.SKIP, str(error))
    except OSError as error:
        return Verdict(Act.SKIP, f"its record cannot be opened: {error.strerror}")
    return _whose(record, host_nonce) or _who_lives(record, holder)


def _whose(record: records.Record, host_nonce: str) -> Verdict | None:
    if record.host_nonce != host_nonce:
        return Verdict(Act.SKIP, "its record belongs to another host")
    if record.boot != procs.boot_id():
        return Verdict(Act.LITTER, "the machine was started again since")
    if record.namespace != procs.pid_namespace():
        return Verdict(Act.SKIP, "it ran in another PID namespace")
    return None


def _who_lives(record: records.Record, holder: locks.Holder) -> Verdict:
    if holder.pid is None:
        return Verdict(Act.END, "its worker is gone", record)
    if holder.pid <= 0:
        return Verdict(Act.SKIP, "its lock is held by a process that cannot be named")
    row = procs.row(holder.pid)
    if row is None or procs.untouchable(row):
        return Verdict(Act.SKIP, f"its lock is held by process {holder.pid}, which is not ours to end")
    if not _carries(holder.pid, record):
        if procs.ending(holder.pid):
            return Verdict(Act.AGAIN, f"its lock is held by process {holder.pid}, which is ending")
        return Verdict(Act.SKIP, f"its lock is held by process {holder.pid}, which does not carry its nonce")
    return Verdict(Act.END, "its worker outlived its host", record, holder.pid)


def _carries(pid: int, record: records.Record) -> bool:
    nonces = (record.nonce, record.zygote) if record.zygote else (record.nonce,)
    return any(procs.carries_both(pid, nonce, record.host_nonce) for nonce in nonces)

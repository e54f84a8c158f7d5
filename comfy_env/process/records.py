"""A worker's record on disk, from which a later host learns what to look for.

One file, two lines of JSON. The first is written before the process exists and renamed into place; the second, with the
process's numbers, is appended to the same file, because the worker holds a lock on that very file.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from comfy_env.process import procs
from comfy_env.process.files import read_regular

NAME = "worker.record"
SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """``pid`` is 0 until the process was started; ``started`` are clock ticks since boot.

    ``zygote`` is the nonce of the process it is forked from, '' for none: until it carries its own it shows that one.
    """

    nonce: str
    host_nonce: str
    env: str
    generation: int
    exe: str
    boot: str
    namespace: int
    schema: int = SCHEMA
    pid: int = 0
    pgid: int = 0
    started: int = 0
    zygote: str = ""


class Unreadable(ValueError):
    """A record that cannot be read; its text says why."""


class LaterSchema(Unreadable):
    """A record of a version of this package that is not ours to judge."""


def expected(*, nonce: str, host_nonce: str, env: str, generation: int, exe: str, zygote: str = "") -> Record:
    """Return the record of a worker that is about to start on this boot, in this namespace."""
    return Record(nonce, host_nonce, env, generation, exe, procs.boot_id(), procs.pid_namespace(), zygote=zygote)


def write(folder: Path, record: Record) -> Path:
    """Put a record into a run folder, whole or not at all, and return its path."""
    path, fresh = folder / NAME, folder / f"{NAME}.new"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(fd, 0o600)  # whatever the umask says
        os.write(fd, _line(asdict(record)))
    finally:
        os.close(fd)
    os.rename(fresh, path)
    return path


def add_process(folder: Path, *, pid: int, pgid: int, started: int) -> None:
    """Add the numbers of the started process to its record."""
    fd = os.open(folder / NAME, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.write(fd, _line({"pid": pid, "pgid": pgid, "started": started}))
    finally:
        os.close(fd)


def read(path: Path) -> Record:
    """Return a record; raises Unreadable. A half-written second line counts as not written."""
    try:
        first, _, second = read_regular(path).partition(b"\n")
        found = _checked(first)
    except OSError as error:
        raise Unreadable(f"it cannot be read ({error.strerror})") from error
    _check_schema(found.get("schema"))
    if second.endswith(b"\n"):
        found |= _checked(second)
    return _record(found)


def _check_schema(schema: object) -> None:
    if isinstance(schema, int) and schema > SCHEMA:
        raise LaterSchema(f"its schema is {schema}, newer than {SCHEMA}")
    if schema != SCHEMA:
        raise Unreadable(f"its schema is {schema!r}, not {SCHEMA}")


def _record(found: dict) -> Record:
    known = {field.name: field.type for field in fields(Record)}
    given = {name: value for name, value in found.items() if name in known}
    for name, value in given.items():
        if type(value).__name__ != known[name]:
            raise Unreadable(f"its {name} is {value!r}")
    try:
        return Record(**given)
    except TypeError as error:
        raise Unreadable("it lacks a field") from error


def _checked(line: bytes) -> dict:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Unreadable("it is not JSON") from error
    if not isinstance(found, dict):
        raise Unreadable("it is not an object")
    return found


def _line(content: dict) -> bytes:
    return json.dumps(content).encode() + b"\n"

"""What the tests of the arena look at from outside: descriptors, shared memory in use, mappings."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from comfy_env.transport import canary
from tests.transport.workers import Started, joined

PACK = str(Path(__file__).parent / "pack")


def pack_module():
    """Return the pack as it is imported here, so that its classes are known on both ends."""
    if "arena_pack" not in sys.modules:
        spec = importlib.util.spec_from_file_location("arena_pack", Path(PACK, "arena_pack.py"))
        assert spec is not None and spec.loader is not None
        sys.modules["arena_pack"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["arena_pack"])
    return sys.modules["arena_pack"]


@contextlib.contextmanager
def arena_worker(**more) -> Iterator[Started]:
    """Start a worker whose arena has been used in both directions, so that what it needs is there."""
    with joined(import_roots=(PACK,), **more) as worker:
        prove(worker)
        yield worker


def prove(worker: Started) -> None:
    made = canary.make(worker.launch.generation)
    proof = canary.send(worker.session, made)
    assert proof.cpu == proof.echo == made.digest


def descriptors(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def shared_descriptors(pid: int | str = "self") -> int:
    """How many descriptors of segments a process has open."""
    count = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):   # closed meanwhile
            count += "comfy_env" in os.readlink(f"/proc/{pid}/fd/{name}")
    return count


def shared_bytes(pid: int | str = "self") -> int:
    """How much shared memory the segments that a process has open take up, each counted once."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):   # closed meanwhile
            path = f"/proc/{pid}/fd/{name}"
            if "comfy_env" in os.readlink(path):
                facts = os.stat(path)
                found[facts.st_ino] = facts.st_blocks * 512
    return sum(found.values())


def mapped_segments(pid: int | str = "self") -> int:
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:comfy_env")

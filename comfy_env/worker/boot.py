"""The first moments of a worker, before anything heavy is imported."""

from __future__ import annotations

import faulthandler
import fcntl
import importlib
import json
import logging
import os
import signal
import socket
import sys
from typing import Any

from . import crashes, orphaned


def read_document(option: str, source: str) -> dict[str, Any]:
    """Return the boot document from an inherited descriptor, or from a file that is removed at once."""
    descriptor = int(source) if option == "--boot" else os.open(source, os.O_RDONLY)
    with os.fdopen(descriptor, "rb") as stream:
        document = json.loads(stream.read())
    if option == "--boot-file":
        os.unlink(source)
    return document


def run(document: dict[str, Any]) -> int:
    """Serve until the host says goodbye or is gone; returns the exit code."""
    _protect(document)
    guest = importlib.import_module(".guest", __package__)   # before a pack's modules could be taken for those it imports
    sys.path[:0] = document.get("import_roots", [])
    logging.basicConfig(level=document.get("log_level", logging.INFO), format="%(levelname)s %(name)s: %(message)s")
    main, side = _lanes(document)
    os.register_at_fork(after_in_child=lambda: _forget(main, side))
    return guest.serve(document, main, side, spin=True)


def _protect(document: dict[str, Any]) -> None:
    """Do what must be done before any time is spent: keep descriptors private, tie the life to the host's."""
    for name in ("main_fd", "side_fd", "lifeline_fd"):
        if document.get(name) is not None:
            os.set_inheritable(document[name], False)
    if document.get("lifeline_fd") is not None:
        orphaned.guard(document["lifeline_fd"])
    if document.get("record_lock"):
        _lock(document["record_lock"])
    crashes.tell_of_crashes(document.get("crash_fd"))
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, all_threads=True)


def _lock(path: str) -> None:
    """Lock this worker's record for life: the descriptor is never closed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lanes(document: dict[str, Any]) -> tuple[socket.socket, socket.socket]:
    if document.get("listener"):
        return _connect(document["listener"]), _connect(document["listener"])
    return socket.socket(fileno=document["main_fd"]), socket.socket(fileno=document["side_fd"])


def _connect(path: str) -> socket.socket:
    lane = socket.socket(socket.AF_UNIX)
    lane.connect(path)
    return lane


def _forget(*lanes: socket.socket) -> None:
    """Close the lanes in a forked child: one that lives on would hide the worker's end from the host."""
    for lane in lanes:
        os.close(lane.detach())

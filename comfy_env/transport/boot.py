"""The boot document: what a worker must know before it can speak."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from comfy_env.transport import closures
from comfy_env.values import Launch

TOO_OLD = 78
_SENTENCE = "workers need Python 3.9 or newer"
_UNKNOWN = "unknown option"


def refusal(code: int | None, interpreter: str, lines: tuple[str, ...]) -> str:
    """Return what an interpreter too old for a worker said of itself before it ended, '' for any other end."""
    said = [line.partition(": ")[2] for line in lines if _SENTENCE in line]
    if code == TOO_OLD and said:
        return said[-1]
    if code == 2 and any(_UNKNOWN in line.lower() and "-I" in line for line in lines):  # Python 2 never comes to the program
        return f"{_SENTENCE}, {interpreter} is one that does not know its option -I"
    return ""


def boot_document(launch: Launch, endpoint: Any, record_lock: Path | None = None) -> dict[str, Any]:
    """Return the document for a launch. It holds the one-time key: it travels by pipe or private file only."""
    return {
        "auth_key": launch.auth_key.hex(),
        "nonce": launch.nonce,
        "host_nonce": launch.host_nonce,
        "env": launch.env,
        "generation": launch.generation,
        "main_fd": endpoint.main_fd,
        "side_fd": endpoint.side_fd,
        "lifeline_fd": endpoint.lifeline_fd,
        "crash_fd": getattr(endpoint, "crash_fd", None),
        "listener": endpoint.listener,
        "import_roots": list(launch.import_roots),
        "cloudpickle_folder": closures.folder(),
        "host_pid": os.getpid(),
        "record_lock": None if record_lock is None else str(record_lock),
        "log_level": logging.getLogger("comfy_env").getEffectiveLevel(),
    }

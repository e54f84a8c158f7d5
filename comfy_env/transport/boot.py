"""The boot document: what a worker must know before it can speak."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from comfy_env.transport import closures
from comfy_env.values import Launch


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
        "listener": endpoint.listener,
        "import_roots": list(launch.import_roots),
        "cloudpickle_folder": closures.folder(),
        "host_pid": os.getpid(),
        "record_lock": None if record_lock is None else str(record_lock),
        "log_level": logging.getLogger("comfy_env").getEffectiveLevel(),
    }

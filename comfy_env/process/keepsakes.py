"""What a dead host's journal tells is kept when its run folder is removed: a post-mortem must survive the next start."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from comfy_env.process.files import read_regular

log = logging.getLogger(__name__)


def keep_stories(folder: Path) -> None:
    """Write each story of a dead host's journal beside those of hosts that closed; what cannot be read or written is told."""
    journal = folder / "journal.json"
    try:
        page = json.loads(read_regular(journal))
        told = [(entry["key"], entry.get("story", [])) for entry in page["envs"]]
        host, written = int(page.get("pid", 0)), float(page.get("written", 0.0))
    except FileNotFoundError:
        log.debug("%s: its host wrote no journal", folder)
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("the stories in %s cannot be kept: %r", journal, error)
        return
    for key, story in told:
        save(folder.parent / "stories", str(key), {"key": key, "story": story, "ended": written, "host": host})


def save(stories: Path, key: str, page: dict[str, Any]) -> None:
    """Write one story, readable by this user only; one that cannot be written is told."""
    try:
        stories.mkdir(mode=0o700, exist_ok=True)
        write_private(stories / f"{os.path.basename(key)}.json", json.dumps(page))
    except OSError as error:
        log.warning("the story of %s cannot be kept: %s", key, error)


def write_private(path: Path, text: str) -> None:
    """Write a file of this user only, whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(beside, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
        stream.write(text)
    os.replace(beside, path)

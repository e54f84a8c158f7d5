"""Which generation speaks: rides in every line of the log."""

from __future__ import annotations

import logging


class Generation(logging.Filter):
    """Adds the generation to every record of a handler."""

    def __init__(self) -> None:
        super().__init__()
        self.number = "new"

    def filter(self, record: logging.LogRecord) -> bool:
        record.generation = self.number
        return True


speaking = Generation()
"""The one of this process."""

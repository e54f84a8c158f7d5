"""What a node tells the host without waiting for an answer: progress, previews, messages for the browser.

Reports of one node follow each other at least `PAUSE` apart; what comes faster is merged into the next, and the last one
always leaves. Outside a call, as when a coroutine goes on between two of them, everything waits for the next.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Optional

from .. import callback

PAUSE = 0.02
MOST = 1000   # messages kept for the next call


class Outbox:
    """One worker's way out; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._progress: dict[Any, tuple] = {}
        self._sent: dict[Any, float] = {}
        self._messages: list[Any] = []
        self._timer: Optional[threading.Timer] = None

    def progress(self, way: str, place: Any, value: Any, total: Any, preview: Any = None) -> None:
        """Report how far a node is. `way` says through which of ComfyUI's doors, `place` is (prompt id, node id)."""
        key = (way, place)
        with self._lock:
            if preview is None and key in self._progress:
                preview = self._progress[key][2]
            self._progress[key] = (value, total, preview)
            wait = self._sent.get(key, 0.0) + PAUSE - time.monotonic()
            if wait > 0:
                self._later(wait)
                return
        self.flush()

    def message(self, *parts: Any) -> None:
        """Send a message for the browser."""
        with self._lock:
            self._messages.append(parts)
            del self._messages[:-MOST]
        self.flush()

    def flush(self) -> None:
        """Send what waits, if a call runs that can carry it; raises CallInterrupted if that call is to end."""
        if not callback.is_called():
            return
        with self._lock:   # also where nothing waits: what another thread is sending must leave before its call ends
            if not self._progress and not self._messages:
                return
            progress, self._progress = self._progress, {}
            messages, self._messages = self._messages, []
            now = time.monotonic()
            self._sent = {**{key: then for key, then in self._sent.items() if now - then < PAUSE}, **dict.fromkeys(progress, now)}
            for (way, place), (value, total, preview) in progress.items():   # under the lock: the last word must be the last
                callback.report_progress(value, total, place[1], preview={"way": way, "place": tuple(place), "preview": preview})
            for parts in messages:
                callback.report_progress(0, 0, "", preview={"way": "message", "parts": parts})

    def _later(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = threading.Timer(seconds, self._due)
            self._timer.daemon = True
            self._timer.start()

    def _due(self) -> None:
        with self._lock:
            self._timer = None
        try:
            self.flush()
        except (callback.CallInterrupted, callback.NoHost, OSError):
            self._timer = None   # the call ended meanwhile: nobody watches any more


outbox = Outbox()

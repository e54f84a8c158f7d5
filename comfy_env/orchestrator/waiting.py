"""Waiting on an event for a while, in a task that may be cancelled at any moment."""

from __future__ import annotations

import asyncio


async def woken(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, no longer than this; tell whether it came.

    Not `asyncio.wait_for`: before Python 3.12 that forgets a cancellation which meets the event.
    """
    task = asyncio.ensure_future(event.wait())
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        return bool(done)
    finally:
        task.cancel()

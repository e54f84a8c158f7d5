"""Awaiting a blocking call on a thread of its own, never on the loop's shared executor."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from comfy_env.errors import HookStopped


async def in_thread(work: Callable[[], Any], cancel: Callable[[], None], name: str = "comfy-env async call") -> Any:
    """Run `work` on a new thread in the caller's context; a cancelled awaiter calls `cancel` and leaves."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            value, error = context.run(work), None
        except BaseException as caught:  # handed to the awaiter
            value, error = None, caught
        if not loop.is_closed():
            loop.call_soon_threadsafe(_deliver, future, value, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        return await future
    except asyncio.CancelledError:
        cancel()
        raise


def _deliver(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(_bearable(error))


def _bearable(error: BaseException) -> BaseException:
    """Return the error, or one that a future takes in its place: StopIteration would end the awaiter as if it had returned."""
    if not isinstance(error, StopIteration):
        return error
    what = f"a hook of this call raised {type(error).__name__}: {error}".rstrip(": ")
    told = HookStopped(what, hint="let the hook raise another exception")
    told.__cause__ = error
    return told

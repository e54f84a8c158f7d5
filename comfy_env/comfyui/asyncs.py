"""Awaits coroutine functions that go on in a worker, without holding its lane or the event loop meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

from comfy_env import errors
from comfy_env.comfyui.home import ENTRY
from comfy_env.comfyui.isolated import Isolated, Node
from comfy_env.comfyui.prompts import prompt_thread

Callbacks = Mapping[str, Callable[..., Any]]


async def call_async(home: Isolated, node: Node, order: dict[str, Any], callbacks: Callbacks | None) -> dict[str, Any]:
    """Run an order whose function is a coroutine and return its answer; cancelling it cancels the coroutine.

    The work is a thread's of its own: core waits for the loop's default executor when a prompt has failed.
    """
    asked = order.get("fingerprint")
    running = _Running(home, node, order, callbacks)
    answer = await running.answered()
    home.take(node, asked, answer)
    return answer


class _Running:
    """One coroutine in the worker, followed by one thread here."""

    def __init__(self, home: Isolated, node: Node, order: dict[str, Any], callbacks: Callbacks | None) -> None:
        self._home, self._node, self._order = home, node, order
        self._options = home.options(node, order, callbacks)
        self._left = threading.Event()
        self._generation = 0

    async def answered(self) -> dict[str, Any]:
        from comfy_env.pool.asyncs import in_thread  # only a call needs it

        loop = asyncio.get_running_loop()

        def follow() -> dict[str, Any]:
            prompt_thread.follow(loop)
            return self._follow()

        answer: dict[str, Any] = await in_thread(follow, self._left.set, f"comfy-env {self._node.name}")
        return answer

    def _follow(self) -> dict[str, Any]:
        """Start the coroutine and collect it turn by turn until it is over or nobody waits for it any more."""
        answer = self._ask("begin", self._order)
        while "pending" in answer:
            number = answer["pending"]
            if self._left.is_set():
                self._ask("cancel", number)
                return {}
            self._check_same_worker()
            answer = self._collected(number)
        return answer

    def _collected(self, number: int) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._ask("collect", number)
            return answer
        except BaseException:
            if self._now() == self._generation:   # it was interrupted while the coroutine waits: that must end as well
                self._ask("cancel", number)
            raise

    def _ask(self, function: str, argument: Any) -> Any:
        home = self._home
        try:
            with home.host.interrupts.during(home.plan.key):
                answer = home.host.pool.call(home.plan, f"{ENTRY}:{function}", argument, options=self._options)
        except errors.ComfyEnvError as error:
            raise home.told(error)  # noqa: B904 - it carries its cause
        if not self._generation:
            self._generation = self._now()
        return answer

    def _check_same_worker(self) -> None:
        """Raise if the worker that runs the coroutine is gone: the next call would start another."""
        if self._now() != self._generation:
            raise errors.WorkerCrashed(
                f"the worker ended while {self._node.name} waited in it", env=self._home.plan.key, generation=self._generation,
                hint=f"comfy-env story {self._home.plan.key} tells what became of it",
            )

    def _now(self) -> int:
        record = self._home.host.pool.record(self._home.plan)
        return record.generation if record else 0

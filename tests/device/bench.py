"""The simulated device as the shared checks want it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from tests.device.kit import device_worker


class SimBench:
    """``warm`` are workers by policy that checks may share as long as they let them live."""

    def __init__(self, card: Any, warm: dict[int, Any]) -> None:
        self.card = card
        self._warm = warm

    @contextlib.contextmanager
    def worker(self, policy: int = 1, **more: Any) -> Iterator[Any]:
        worker = None if more else self._warm.get(policy)
        if worker is None or worker.process.exit_status() is not None:
            with device_worker(policy, **more) as worker:
                yield worker
            return
        yield worker
        if worker.process.exit_status() is None:
            worker.value("gpu_guest:let_go")
            worker.value("gpu_guest:nothing")
            assert worker.session.traffic["lent"] == 0

    def used(self) -> int:
        return self.card.used[0]

    def used_in(self, worker: Any) -> int:
        return worker.value("sim_card:figures")["used"][0]

    def busy(self, tensor: Any, number: float) -> None:
        """Fill the tensor only once another process waits for that."""
        self.card.hold()
        self.card.later(lambda: tensor.raw.fill_(number))
        threading.Thread(target=self.card.go_when_waited_for, name="simulated stream").start()

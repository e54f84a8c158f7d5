"""One call's ticket: what its asker waits on.

The asking thread is told two things through the ticket's mailbox: that the lane is offered to it, and how the call was
settled. A settlement is the last word and comes exactly once.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
from dataclasses import dataclass, field
from typing import Any

from comfy_env.lifecycle.deaths import Outcome
from comfy_env.process.patience import Patience
from comfy_env.values import CallOptions, Progress

DEFAULT_OPTIONS = CallOptions()
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Offer:
    generation: int


@dataclass(frozen=True)
class Settled:
    generation: int
    outcome: Outcome


@dataclass(eq=False)
class Ticket:
    """``value`` and ``error`` carry what the worker answered; they are set before the call is reported as ended.

    ``reading`` is true while its asker waits on the lane, ``settled`` once its settlement is in the mail, ``stopped`` is
    what its own progress hook raised, ``called_back`` what the last of its callbacks that failed did, ``left`` tells that
    somebody gave the call up for its asker.
    """

    options: CallOptions = DEFAULT_OPTIONS
    number: int = field(default_factory=lambda: next(_numbers))
    value: Any = None
    error: BaseException | None = None
    reading: bool = False
    settled: bool = False
    left: bool = False
    stopped: BaseException | None = None
    called_back: Exception | None = None
    _mail: queue.SimpleQueue[Offer | Settled] = field(default_factory=queue.SimpleQueue)

    def offer(self, generation: int) -> None:
        self._mail.put(Offer(generation))

    def settle(self, generation: int, outcome: Outcome) -> None:
        self.settled = True
        self._mail.put(Settled(generation, outcome))

    def report(self, progress: Progress) -> None:
        """Tell the caller's hook; what it raises stops the call."""
        assert self.options.on_progress is not None
        try:
            self.options.on_progress(progress)
        except BaseException as error:
            self.stopped = error
            raise

    def next_word(self, patience: Patience | None = None) -> Offer | Settled | None:
        """Wait for the next word; None when the asker's patience is over without one."""
        if patience is None:
            return self._mail.get()
        while True:
            wait = patience.slice()
            with contextlib.suppress(queue.Empty):  # not yet
                return self._mail.get(timeout=wait)
            if not wait:
                return None

    def settlement(self) -> Settled:
        """Wait for the settlement; offers that came before it are void."""
        while True:
            word = self._mail.get()
            if isinstance(word, Settled):
                return word

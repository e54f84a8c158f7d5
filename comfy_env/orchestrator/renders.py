"""What is known of ComfyUI's renders. Pure but for the jobs, which run in a transaction of the store.

Three states: idle, busy with a prompt, unknown. A monitor that never got through knows nothing; that is not idle. A
prompt that vanished is lost, never done.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Collection
from dataclasses import dataclass, replace

from comfy_env.orchestrator.messages import SERVICE
from comfy_env.orchestrator.store import Transaction
from comfy_env.values import Busy, Idle, Unknown, Verdict

MOST_FAILURES = 3
OPEN, DONE, FAILED, LOST = "open", "done", "failed", "lost"


class State(enum.Enum):
    IDLE = "idle"
    BUSY = "busy"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Queue:
    """What ComfyUI says: the prompts it runs and those that wait, ours and others'."""

    running: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.running, *self.pending)


@dataclass(frozen=True)
class Render:
    """``prompt`` is the one it is busy with, or was when the connection was lost; ``failed`` counts polls in a row."""

    state: State = State.UNKNOWN
    since: float = 0.0
    prompt: str = ""
    failed: int = 0
    first_failure: float = 0.0

    def heard(self, queue: Queue, now: float) -> Render:
        """Return the state after a poll that got through."""
        prompt = next(iter(queue.all), "")
        state = State.BUSY if prompt else State.IDLE
        same = state is self.state and prompt == self.prompt
        return Render(state, self.since if same else now, prompt)

    def missed(self, now: float) -> Render:
        """Return the state after a poll that failed: unknown from the third on, since the first."""
        first = self.first_failure if self.failed else now
        after = replace(self, failed=self.failed + 1, first_failure=first)
        if after.failed >= MOST_FAILURES and self.state is not State.UNKNOWN:
            return replace(after, state=State.UNKNOWN, since=first)
        return after

    def verdict(self) -> Verdict:
        if self.state is State.IDLE:
            return Idle()
        if self.state is State.BUSY:
            return Busy(f"prompt {self.prompt[:8]} is in ComfyUI's queue", self.since)
        return Unknown("ComfyUI does not answer", self.since)

    def holding(self, now: float, hold: float) -> str | None:
        """Return the prompt for which messages are held: while it runs, and a while after its ComfyUI fell silent.

        None: nobody has got through yet, so what is held stays held and no other message is.
        """
        if self.state is not State.UNKNOWN:
            return self.prompt
        return "" if now - self.since >= hold else self.prompt or None


def track(t: Transaction, prompts: Collection[str]) -> None:
    """Write down prompts that were seen in the queue."""
    t.db.executemany("INSERT OR IGNORE INTO renders VALUES (?, ?, ?, NULL)", [(prompt, OPEN, t.now) for prompt in prompts])


def tracked(t: Transaction) -> set[str]:
    """Return the prompts whose end nobody was told of."""
    return {row[0] for row in t.db.execute("SELECT prompt FROM renders WHERE state = ?", (OPEN,))}


def close(t: Transaction, prompt: str, outcome: str) -> bool:
    """Tell of a prompt's end, exactly once in the life of the store; tell whether it was news."""
    given = (outcome, t.now, prompt, OPEN)
    given = (outcome, t.now, prompt, OPEN)
    changed = t.db.execute("UPDATE renders SET state = ?, ended = ? WHERE prompt = ? AND state = ?", given).rowcount
    if changed:
        t.event(SERVICE, "render", json.dumps({"prompt": prompt, "outcome": outcome}))
    return bool(changed)

"""Questions on a worker's side lane: asked beside whatever runs, answered within a second or given up.

A side lane that did not answer rests: who asks meanwhile hears nothing at once. An answer says that the worker breathes,
never that it is well: one that is stuck in a kernel still answers here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from comfy_env import errors
from comfy_env.lifecycle.record import SERVING
from comfy_env.pool.seat import Seat, Worker
from comfy_env.process.patience import Patience
from comfy_env.transport import commands


def ask_aside(seat: Seat, question: str, facts: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the answer's message, None where nobody serves, the lane rests, or no answer came in time."""
    if question not in commands.ASIDES:
        raise errors.PlanError(f"{question!r} is no question of the side lane", env=seat.key, hint=f"ask {', '.join(commands.ASIDES)}")
    worker = seat.worker
    if worker is None or worker.lanes is None or seat.env.row.state not in SERVING or seat.clock() < worker.side_rests_until:
        return None
    began = time.monotonic()
    answer, trouble = _asked(seat, worker, question, facts)
    if trouble:
        about = ", ".join(f"{name} {value}" for name, value in sorted(facts.items()) if isinstance(value, str | int))
        took = time.monotonic() - began
        seat.log.warning("[%s #%s] %s (%s): %s after %.2f s", seat.key, worker.generation, question, about or "-", trouble, took)
    return answer


def _asked(seat: Seat, worker: Worker, question: str, facts: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str]:
    """Return the answer and what is wrong with it, '' for nothing."""
    assert worker.process is not None and worker.lanes is not None
    limits = seat.env.limits
    try:
        answer = commands.aside(worker.process, worker.lanes, question, facts, Patience(limits.side_reply))
    except TimeoutError:
        worker.side_rests_until = seat.clock() + limits.side_rest
        return None, f"no reply within {limits.side_reply:g} s; its side lane rests for {limits.side_rest:g} s"
    except (errors.ComfyEnvError, OSError) as error:  # its end, or an answer that is none
        return None, str(error).partition("\n")[0]
    if not isinstance(answer, Mapping):
        return None, "the answer has another shape than it must"
    return answer, str(answer.get("error", ""))

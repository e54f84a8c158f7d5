"""What observers hear. Broadcast; results are ignored; an exception is logged once and never reaches the pool.

Called on the pool's threads after the fact, with no lock held. `record` is a frozen picture of the worker's row.
"""

from __future__ import annotations

from typing import Any

from comfy_env.hooks.specs import hookspec
from comfy_env.values import EnvState


class Observe:
    """Any of these may be implemented by any plugin of group `comfy_env.observers`.

    Of one environment they come one after another, in the order in which it happened; Ctrl-C may cost the one that is being
    told. A call's end is told before its caller has the answer, unless an observer takes longer than half a second.
    """

    @hookspec
    def comfy_env_worker_born(self, record: Any) -> None:
        """A process was started."""

    @hookspec
    def comfy_env_worker_proved(self, record: Any) -> None:
        """A worker proved itself and may be used."""

    @hookspec
    def comfy_env_worker_demoted(self, record: Any, why: str) -> None:
        """A worker is used without the GPU path."""

    @hookspec
    def comfy_env_worker_refused(self, record: Any, why: str) -> None:
        """A worker did not prove itself and is ended."""

    @hookspec
    def comfy_env_worker_retired(self, record: Any, reason: str) -> None:
        """A worker's row was given up; its process is being ended."""

    @hookspec
    def comfy_env_worker_reaped(self, record: Any) -> None:
        """An idle worker that held nothing was ended."""

    @hookspec
    def comfy_env_worker_released(self, record: Any, freed: int, held: int) -> None:
        """A worker gave memory back (bytes)."""

    @hookspec
    def comfy_env_worker_wedged(self, record: Any, note: str) -> None:
        """A worker was killed but will not die."""

    @hookspec
    def comfy_env_worker_parked(self, record: Any, until: float) -> None:
        """An environment's workers died too often; it rests until this lived time."""

    @hookspec
    def comfy_env_call_started(self, record: Any, call: dict[str, Any]) -> None:
        """A call began on a worker; `call` holds its ticket."""

    @hookspec
    def comfy_env_call_ended(self, record: Any, call: dict[str, Any]) -> None:
        """A call that began ended; `call` holds its ticket, the kind of its ending ("returned", "crashed", …) and its seconds."""

    @hookspec
    def comfy_env_env_built(self, state: EnvState) -> None:
        """An environment was built."""

    @hookspec
    def comfy_env_announce(self, event: dict[str, Any]) -> None:
        """Something else worth knowing happened."""

"""The crash loop: deaths are counted in a window of lived time, and too many of them park an environment.

The pause doubles each time. A worker that served longer than the window clears the count and the doubling.
"""

from __future__ import annotations

from comfy_env.lifecycle.deaths import COUNTED, UNCOUNTED, Kind, Outcome, Reason
from comfy_env.lifecycle.record import Ledger, WorkerRecord, changed
from comfy_env.settings import Settings


def counted(ledger: Ledger, row: WorkerRecord, reason: Reason, verdict: Outcome | None, limits: Settings, now: float) -> Ledger:
    """Return the ledger with a worker's death entered, parked if it was one too many."""
    if row.proved is not None and now - row.proved > limits.crash_window:
        ledger = changed(ledger, deaths=(), parks=0)
    if reason not in COUNTED or (verdict is not None and verdict.kind in UNCOUNTED):
        return ledger
    deaths = (*(at for at in ledger.deaths if now - at <= limits.crash_window), now)
    if len(deaths) < limits.crash_limit:
        return changed(ledger, deaths=deaths)
    pause = min(limits.park * 2.0 ** min(ledger.parks, 60), limits.park_most)
    told = f"{len(deaths)} deaths in {limits.crash_window:g} s, the last because {reason.value}"
    return changed(ledger, deaths=deaths, parks=ledger.parks + 1, parked_until=now + pause, park_reason=told)


def unparked(ledger: Ledger, forgiven: bool) -> Ledger:
    """Return the ledger with the pause over; `forgiven` also forgets the deaths and the doubling."""
    ledger = changed(ledger, parked_until=None, park_reason="")
    return changed(ledger, deaths=(), parks=0) if forgiven else ledger


def parked(ledger: Ledger, now: float) -> Outcome:
    """Return what a call to a parked environment is told."""
    left = max(0.0, (ledger.parked_until or now) - now)
    return Outcome(
        Kind.PARKED,
        f"its workers died too often: {ledger.park_reason}; it will be tried again in {left:.1f} s",
        hint="mend what its last output tells of, or wait; `comfy-env story` tells each death",
    )

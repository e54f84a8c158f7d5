"""What the idle tick tells the machine about one environment before it judges."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from comfy_env.lifecycle import events
from comfy_env.lifecycle.record import State
from comfy_env.pool.seat import Seat
from comfy_env.process import procs

if TYPE_CHECKING:
    from comfy_env.pool.house import House

log = logging.getLogger(__name__)


def tick(house: House, seat: Seat) -> None:
    """Tell what the ports say now, then let the machine judge."""
    seat.limit(house.idle_reap.name, house.idle_reap.look())
    for what in (tell_prompt, _tell_card, _tell_holds, _tell_size):
        tell(what, house, seat)
    keeper = seat.keeper
    if keeper is not None and keeper.is_due():
        seat.performer(seat.env.row.generation).urgent(keeper.tend, "zygote")
    seat.post(events.Tick())


def tell(what: Callable[[House, Seat], None], house: House, seat: Seat) -> None:
    """Tell the machine one thing that a port says."""
    try:
        what(house, seat)
    except Exception:  # a port is the host's own code: what it raises must keep no limit from being judged, and no call from being served
        log.exception("[%s] the host could not be asked", seat.key)


def tell_prompt(house: House, seat: Seat) -> None:
    prompt = house.prompt.running()
    if prompt != seat.env.ledger.prompt:
        seat.post(events.PromptChanged(prompt))


def _tell_card(house: House, seat: Seat) -> None:
    device = seat.env.row.device or seat.plan.device or ""
    tight = house.memory.tight(device or None)
    if tight != (device in seat.env.ledger.tight):
        seat.post(events.CardTight(device, tight))


def _tell_holds(house: House, seat: Seat) -> None:
    row, worker = seat.env.row, seat.worker
    if worker is None or worker.session is None:
        return
    tensors, references = worker.session.tensors, worker.session.codec.references
    if (tensors, references) != (row.host_tensors, row.host_references):
        seat.post(events.HostHoldsChanged(worker.generation, tensors, references))


def _tell_size(house: House, seat: Seat) -> None:
    most, row = seat.env.limits.max_rss * 2**20, seat.env.row
    if most and row.pid and row.stale is None and row.state is State.READY:
        resident = procs.resident(row.pid)
        if resident > most:
            seat.post(events.Outgrown(row.generation, resident))

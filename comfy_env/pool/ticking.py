"""What the idle tick tells the machine about one environment before it judges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comfy_env.lifecycle import events
from comfy_env.pool.seat import Seat

if TYPE_CHECKING:
    from comfy_env.pool.house import House


def tick(house: House, seat: Seat) -> None:
    """Tell what the ports say now, then let the machine judge."""
    _tell_prompt(house, seat)
    _tell_card(house, seat)
    _tell_holds(seat)
    seat.post(events.Tick())


def _tell_prompt(house: House, seat: Seat) -> None:
    prompt = house.prompt.running()
    if prompt != seat.env.ledger.prompt:
        seat.post(events.PromptChanged(prompt))


def _tell_card(house: House, seat: Seat) -> None:
    device = seat.env.row.device or seat.plan.device or ""
    tight = house.memory.tight(device or None)
    if tight != (device in seat.env.ledger.tight):
        seat.post(events.CardTight(device, tight))


def _tell_holds(seat: Seat) -> None:
    row, worker = seat.env.row, seat.worker
    if worker is None or worker.session is None:
        return
    references = worker.session.codec.references
    if references != row.host_references:
        seat.post(events.HostHoldsChanged(row.generation, row.host_tensors, references))

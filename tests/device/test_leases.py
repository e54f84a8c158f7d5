"""What is lent is kept until its lease is back, however the message that lent it ends."""

from __future__ import annotations

import gc
import time

import pytest
import torch

from comfy_env.errors import DecodeRefused, EncodeRefused, ReferenceLost
from comfy_env.transport.codec import HostCodec
from comfy_env.transport.devices import HostDevices
from comfy_env.worker.codec import GuestSide
from comfy_env.worker.resident import Resident
from comfy_env.worker.wire import sealed
from comfy_env.worker.wire.devices import Devices
from comfy_env.worker.wire.faults import Unproved
from comfy_env.worker.wire.inbox import Loan
from comfy_env.worker.wire.payload import Codec
from tests.arena.kit import descriptors
from tests.device.kit import device_worker, host_card, ramp

pytestmark = pytest.mark.shares("fd")   # a device's memory that was opened stays open for what comes next
COUNT = 100_000


@pytest.fixture(scope="module")
def pair():
    with host_card() as card, device_worker() as worker:
        worker.value("gpu_guest:plus_one", card.place(ramp(COUNT), 0))
        yield card, worker
        assert card.faults == []


@pytest.fixture
def card(pair):
    yield pair[0]
    pair[0].fault = ""


@pytest.fixture
def worker(pair):
    yield pair[1]
    pair[1].value("gpu_guest:let_go")
    pair[1].value("gpu_guest:nothing")
    assert pair[1].session.traffic["lent"] == 0


def _used_there(worker) -> int:
    return worker.value("sim_card:figures")["used"][0]


def test_a_result_nobody_waits_for_any_more_is_given_back(worker, card):
    value, base = card.place(ramp(COUNT), 0), _used_there(worker)
    with pytest.raises(TimeoutError):
        worker.value("sim_card:slow_plus_one", value, 0.3, deadline=time.monotonic() + 0.05)
    late = worker.session.late
    assert _used_there(worker) >= base
    assert worker.session.late == late + 1
    gc.collect()
    worker.value("gpu_guest:nothing")
    assert _used_there(worker) == base


def test_a_result_that_cannot_be_looked_at_is_lost_by_name_and_its_memory_is_given_back(worker, card):
    base = _used_there(worker)
    worker.session.look_away()
    card.fault = "does not open"
    with pytest.raises(ReferenceLost, match="a tensor on a device was lost.*does not open"):
        worker.value("sim_card:make", COUNT)
    card.fault = ""
    gc.collect()
    worker.value("gpu_guest:nothing")
    assert _used_there(worker) == base


def test_an_input_that_cannot_be_looked_at_is_refused_by_name_and_given_back(worker, card):
    worker.call("sim_card:look_away")
    worker.call("sim_card:faulty", "does not open")
    answer = worker.call("gpu_guest:nothing", card.place(ramp(COUNT), 0))
    worker.call("sim_card:faulty", "")
    assert answer.kind.name == "REFUSED" and "does not open" in answer.text
    worker.value("gpu_guest:nothing")
    assert worker.session.traffic["lent"] == 0


def test_a_call_refused_at_the_sender_lends_nothing_and_keeps_nothing(worker, card):
    base = card.used[0]
    with pytest.raises(EncodeRefused, match=r"args\[1\]"):
        worker.value("gpu_guest:nothing", card.place(ramp(COUNT), 0), object())
    assert worker.session.traffic["lent"] == 0
    assert card.used[0] == base


def test_a_call_for_which_there_is_no_room_takes_back_what_it_lent(worker, card, monkeypatch):
    monkeypatch.setattr("comfy_env.worker.wire.headroom.RESERVE", 1 << 60)
    with pytest.raises(EncodeRefused, match="memory"):
        worker.value("gpu_guest:nothing", card.place(ramp(COUNT), 0), torch.ones(80 << 20))
    assert worker.session.traffic["lent"] == 0


def test_a_handle_of_a_generation_that_died_is_refused_by_name(card, monkeypatch):
    with device_worker(generation=7) as worker:
        value = card.place(ramp(COUNT), 0)
        worker.value("gpu_guest:plus_one", value)
        worker.session.look_away()
        decode = worker.session.codec.decode

        def too_late(payload, buffers=()):
            worker.process.popen.kill()
            worker.process.popen.wait(20)
            return decode(payload, buffers)

        monkeypatch.setattr(worker.session.codec, "decode", too_late)
        with pytest.raises(ReferenceLost, match="generation 7"):
            worker.value("gpu_guest:plus_one", value)
        assert torch.equal(value.cpu(), ramp(COUNT))


@pytest.mark.parametrize("count", [10, COUNT])
def test_a_device_that_fails_while_a_result_is_written_is_a_named_refusal_and_the_worker_goes_on(worker, card, count):
    worker.call("sim_card:faulty", "fails")
    worker.call("sim_card:hindered", "it was refused before")
    answer = worker.call("sim_card:make", count)
    assert answer.kind.name == "REFUSED" and "value cannot be read from its device cuda:0 (the simulated device fails)" in answer.text
    worker.call("sim_card:faulty", "")
    worker.call("sim_card:hindered", "")
    assert torch.equal(worker.value("sim_card:make", count).cpu(), ramp(count))


def test_many_small_tensors_travel_as_bytes_and_stay_on_their_device(worker, card):
    exports = card.exports
    values = [card.place(ramp(10) + number, number % 2) for number in range(300)]
    back = worker.value("gpu_guest:echo", values)
    assert all(torch.equal(one.cpu(), ramp(10) + number) and one.device.index == number % 2 for number, one in enumerate(back))
    assert card.exports == exports


def test_a_window_on_a_device_that_travels_as_bytes_is_laid_over_its_memory_there(worker, card):
    shown = card.place(ramp(10), 0)
    back = worker.value("gpu_guest:echo", [shown.unfold(0, 3, 1), shown.expand(1000, 10)])
    assert [one.stride() for one in back] == [(1, 1), (0, 1)] and [one.untyped_storage().nbytes() for one in back] == [40, 40]
    assert torch.equal(back[0].cpu(), ramp(10).unfold(0, 3, 1)) and torch.equal(back[1].cpu(), ramp(10).expand(1000, 10))


def test_flags_of_tensors_on_a_device_arrive(worker, card):
    leaf = card.place(ramp(COUNT), 0).requires_grad_(True)
    parameter = torch.nn.Parameter(card.place(ramp(COUNT), 0))
    frozen = torch.nn.Parameter(card.place(ramp(COUNT), 0), requires_grad=False)
    back = worker.value("gpu_guest:echo", [leaf, parameter, frozen])
    assert [one.requires_grad for one in back] == [True, True, False]
    assert [isinstance(one, torch.nn.Parameter) for one in back] == [False, True, True]


def test_one_tensor_given_twice_is_lent_once_and_stays_one(worker, card):
    exports = card.exports
    value = card.place(ramp(COUNT), 0)
    first, second = worker.value("gpu_guest:echo", [value, value])
    assert first is second and card.exports == exports + 1


def test_descriptors_memory_and_open_handles_are_flat_over_many_calls(worker, card):
    value = card.place(ramp(COUNT), 0)
    for _ in range(3):
        worker.value("gpu_guest:plus_one", value)

    def taken():
        figures = worker.value("sim_card:figures")
        return descriptors(), descriptors(worker.process.pid), list(card.used), figures["used"], card.opened(), figures["opened"]

    before = taken()
    for _ in range(300):
        worker.value("gpu_guest:plus_one", value)
    assert taken() == before


def test_a_release_closes_what_is_open_at_both_ends(worker, card):
    from comfy_env.transport.commands import release
    from comfy_env.values import Want

    worker.value("gpu_guest:plus_one", card.place(ramp(COUNT), 0))
    assert card.opened() and worker.value("sim_card:figures")["opened"]
    assert worker.lanes is not None
    release(worker.process, worker.lanes, Want(None, "idle"))
    assert card.opened() == 0 == worker.value("sim_card:figures")["opened"]


def test_memory_open_in_the_host_is_bounded(worker, card, monkeypatch):
    monkeypatch.setattr("comfy_env.worker.wire.devices.MOST_OPEN", 2)
    worker.call("sim_card:install", kwargs={"segment": 1 << 19})
    made = [worker.value("sim_card:make", COUNT) for _ in range(6)]
    assert card.opened() <= 2
    assert all(torch.equal(one.cpu(), ramp(COUNT)) for one in made)
    worker.call("sim_card:install")


def test_a_reply_that_is_read_while_the_lanes_are_closed_keeps_nothing_of_the_worker_open(card):
    ends, opened = Ends(card), card.opened()
    ends.devices.verdicts["SIM-0"] = ""
    ends.devices.close()
    value = ends.to_host(card.place(ramp(COUNT), 0))
    assert torch.equal(value.cpu(), ramp(COUNT)) and card.opened() == opened


# ---------------------------------------------------------------- a worker that is not sound

class Ends:
    """A host's codec and a worker's without a lane between them."""

    def __init__(self, card) -> None:
        side = GuestSide(Resident(), None, Devices(lambda: card))
        side.devices.verdicts["SIM-0"] = ""
        self.guest = Codec(side, lends=True)
        self.host = HostCodec("here", 1, {})
        self.devices = HostDevices(lambda *args: {}, {})
        self.host.share(self.devices)

    def to_host(self, value, change=lambda payload: payload):
        payload, buffers = self.guest.encode(value)
        return self.host.decode(change(payload), [Loan(1, self.devices.demotions) for _ in buffers])


def test_memory_that_was_not_agreed_on_is_not_looked_at(card):
    ends, opened = Ends(card), card.opened()
    with pytest.raises(DecodeRefused, match="was not agreed on"):
        ends.to_host(card.place(ramp(COUNT), 0))
    assert card.opened() == opened


FORGED = {
    "beyond its allocation": ("lie outside", lambda args: (*args[:2], 1 << 40, *args[3:])),
    "before its allocation": ("lie outside", lambda args: (*args[:2], -8, *args[3:])),
    "larger than its shape": ("does not fit the bytes", lambda args: (*args[:3], args[3] + 4, *args[4:])),
    "a handle that is a number": ("something else than it must be", lambda args: (args[0], 7, *args[2:])),
    "a handle of rubbish": ("no such handle", lambda args: (args[0], "00" * 64, *args[2:])),
    "a handle that is no hex": ("non-hexadecimal", lambda args: (args[0], "zz", *args[2:])),
    "without a lease": ("something else than it must be", lambda args: (*args[:5], b"x")),
    "too short": ("where none is lent", lambda args: args[:5]),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_description_of_device_memory_is_refused(card, name):
    ends = Ends(card)
    ends.devices.verdicts["SIM-0"] = ""
    forge = FORGED[name][1]
    ends.guest._rows[type(card.place(ramp(2), 0))] = lambda tensor: _forged(ends.guest._write_tensor(tensor), forge)
    with pytest.raises((DecodeRefused, ReferenceLost), match=FORGED[name][0]):
        ends.to_host([card.place(ramp(COUNT), 0)])


def _forged(written, forge):
    marker, args = written
    assert marker is sealed.LENT
    return marker, (*args[:5], forge(args[5]))


def test_a_device_that_was_not_proved_raises_before_anything_is_lent(card):
    ends, exports = Ends(card), card.exports
    with pytest.raises(Unproved, match="SIM-1"):
        ends.guest.encode([card.place(ramp(COUNT), 1)])
    assert card.exports == exports
    payload, buffers = ends.guest.plain.encode([card.place(ramp(COUNT), 1)])
    assert len(buffers) == 1 and buffers[0].nbytes == 4 * COUNT

"""A device is proved in both directions before its memory is lent; what fails takes the other way, by name, at both ends."""

from __future__ import annotations

import pytest
import torch

from comfy_env.errors import DecodeRefused
from tests.device.kit import ROOTS, device_worker, host_card, ramp
from tests.transport.workers import joined

pytestmark = pytest.mark.shares("fd")   # a device's memory that was opened stays open for what comes next
COUNT = 100_000


@pytest.fixture
def card():
    with host_card() as card:
        yield card
        assert card.faults == []


@pytest.fixture(scope="module")
def guest():
    """One worker for all of these: each test has it judge anew."""
    with device_worker() as worker:
        yield worker


@pytest.fixture
def worker(card, guest):
    yield guest
    devices = guest.session.devices
    devices.verdicts.clear()
    devices.demotions.clear()
    devices.policy = 1
    devices.trim()
    guest.call("sim_card:install")
    guest.call("sim_card:forget_verdicts")


def _goes_round(worker, card, index: int = 0) -> torch.Tensor:
    """Send a tensor and return what came back, which must be right and on its device."""
    back = worker.value("gpu_guest:plus_one", card.place(ramp(COUNT), index))
    assert str(back.device) == f"cuda:{index}"
    assert torch.equal(back.cpu(), ramp(COUNT) + 1)
    return back


def test_a_sound_device_is_shared_and_both_ends_know(worker, card):
    _goes_round(worker, card)
    assert worker.session.devices.verdicts == {"SIM-0": ""} == worker.value("sim_card:verdicts")
    assert not worker.session.devices.demotions


def test_a_device_is_proved_with_memory_that_is_really_lent(worker, card):
    _goes_round(worker, card)
    assert card.waits == 4 and worker.value("sim_card:figures")["waits"] == 4   # three parts of the canary, and the tensor


def test_a_tensor_that_a_worker_makes_first_has_the_host_prove_its_device(worker, card):
    made = worker.value("sim_card:make", COUNT, 1)
    assert torch.equal(made.cpu(), ramp(COUNT)) and str(made.device) == "cuda:1"
    assert worker.session.devices.verdicts == {"SIM-1": ""}
    assert worker.session.devices.hops == 0 == worker.value("sim_card:hops")


FAULTS = {
    "the worker reads zeros": ({}, {"fault": "zeros"}, "the canary on the device came back changed"),
    "the host reads zeros": ({"fault": "zeros"}, {}, "the canary's echo from it came back changed"),
    "the host has no handles": ({"fault": "no handles"}, {}, "has no handle"),
    "the worker has no handles": ({}, {"fault": "no handles"}, "has no handle"),
    "another torch": ({}, {"facts": {"torch": "other", "allocator": "native"}}, "torch is simulated here and other in the worker"),
    "another allocator": ({}, {"facts": {"torch": "simulated", "allocator": "async"}}, "allocator is native here and async in the worker"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_not_sound_takes_the_way_through_the_host_and_is_told_once_to_both_ends(worker, card, name):
    here, there, why = FAULTS[name]
    card.fault = here.get("fault", "")
    worker.call("sim_card:install", kwargs=there)
    for _ in range(3):
        _goes_round(worker, card)
    verdicts = worker.session.devices.verdicts
    assert why in verdicts["SIM-0"], verdicts
    assert worker.value("sim_card:verdicts") == verdicts
    assert len(worker.session.devices.demotions) == 1
    assert worker.session.devices.hops >= 3 and worker.value("sim_card:hops") >= 3


def test_sharing_that_is_switched_off_is_told_by_its_setting(worker, card):
    worker.session.devices.policy = 0
    _goes_round(worker, card)
    assert "COMFY_ENV_GPU" in worker.session.devices.verdicts["SIM-0"]
    assert worker.value("sim_card:figures")["exports"] == 0 == card.exports


@pytest.mark.parametrize("policy", [0, 1])
def test_a_tensor_is_on_the_device_that_the_sender_had_whatever_its_number(worker, card, policy):
    worker.session.devices.policy = policy
    worker.call("sim_card:install", kwargs={"uuids": ["SIM-1", "SIM-0"]})
    value = card.place(ramp(COUNT), 0)
    assert worker.value("gpu_guest:facts", value)[0] == "cuda:1"
    assert worker.value("gpu_guest:facts", card.place(ramp(3), 1))[0] == "cuda:0"
    _goes_round(worker, card, 0)
    _goes_round(worker, card, 1)


def test_a_device_the_worker_does_not_have_is_refused_by_name_and_the_worker_goes_on(worker, card):
    worker.call("sim_card:install", kwargs={"uuids": ["SIM-1"]})
    answer = worker.call("gpu_guest:nothing", card.place(ramp(COUNT), 0))
    assert answer.kind.name == "REFUSED" and "came to a process without it" in answer.text and "SIM-0" in answer.text
    assert "this process sees the devices SIM-0, SIM-1, the worker SIM-1" in worker.session.devices.demotions[0]
    _goes_round(worker, card, 1)


def test_a_device_the_host_does_not_have_is_refused_by_name(worker, card):
    worker.call("sim_card:install", kwargs={"uuids": ["SIM-0", "SIM-7"]})
    with pytest.raises(DecodeRefused, match="SIM-7"):
        worker.value("sim_card:make", COUNT, 1)
    _goes_round(worker, card, 0)


def test_one_device_that_cannot_be_shared_leaves_the_others_alone(worker, card):
    worker.session.devices.verdicts["SIM-1"] = "it was refused before"
    worker.call("sim_card:install")
    _goes_round(worker, card, 0)
    assert worker.session.devices.verdicts == {"SIM-0": "", "SIM-1": "it was refused before"}


def test_memory_that_alone_has_no_handle_goes_through_the_host_and_is_told_once(worker, card, caplog):
    _goes_round(worker, card)
    card.fault = "no handles"
    with caplog.at_level("WARNING"):
        for _ in range(3):
            _goes_round(worker, card)
    assert [record.message for record in caplog.records if "goes through the host's memory" in record.message].__len__() == 1
    assert worker.session.devices.verdicts == {"SIM-0": ""}


def test_neither_end_looks_for_a_device_before_a_tensor_on_one_is_met():
    with joined(import_roots=ROOTS) as worker:
        assert worker.value("gpu_guest:has", "torch") is False
        worker.value("gpu_guest:nothing", [1, b"x" * 200_000])
        assert worker.value("gpu_guest:has", "torch") is False
        assert worker.session.devices.verdicts == {}


def test_a_worker_that_dies_while_it_is_asked_for_a_proof_fails_the_call_by_name(card):
    with device_worker() as worker:
        worker.call("sim_card:dies_when_asked")
        with pytest.raises(ConnectionError, match="generation 1"):
            worker.value("gpu_guest:nothing", card.place(ramp(COUNT), 0))
        assert torch.equal(card.place(ramp(COUNT), 0).cpu(), ramp(COUNT))

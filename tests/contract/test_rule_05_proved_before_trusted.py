"""Rule 5: the canary goes through the real transport, contents are compared, and the core alone judges what came back."""

from dataclasses import replace

import pytest

from comfy_env import errors
from tests.contract.worlds import over

WRONG = {
    "the digest is another": {"cpu": "0" * 64},
    "nothing came": {"cpu": None},
    "the echo is another": {"echo": "0" * 64},
    "no echo came": {"echo": None},
}
DEVICE = {
    "the device's content is another": ({"gpu": "zeros", "gpu_echo": "zeros"}, "canary on the device came back changed"),
    "the device's echo is missing": ({"gpu": "same", "gpu_echo": None}, "echo from the device did not come back"),
    "each sees another device": ({"host_device": "GPU-1", "worker_device": "GPU-2"}, "this process sees device GPU-1, the worker GPU-2"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_worker_whose_canary_is_wrong_or_missing_is_refused_and_ended(stage, eventually, wrong):
    stage.spy.after["verify"] = lambda proof: replace(proof, **WRONG[wrong])
    with pytest.raises(errors.TransportRefused) as caught:
        stage.call("add", 1)
    assert "canary" in caught.value.message
    eventually(lambda: stage.spy.processes[0].exit_status() is not None, what="the refused worker is ended")
    stage.spy.after.clear()
    assert stage.call("add", 1, 1) == 2
    assert stage.record.generation == 2


def test_a_refused_worker_never_gets_a_call(stage):
    stage.spy.lies = True
    for _ in range(3):
        with pytest.raises(errors.TransportRefused):
            stage.call("count")
    stage.spy.lies = False
    assert stage.call("count") == 1


@pytest.mark.parametrize("wrong", DEVICE)
def test_a_worker_whose_device_cannot_be_shared_is_used_and_demoted_and_the_log_says_why(stage, caplog, wrong):
    change, told = DEVICE[wrong]
    stage.spy.after["verify"] = lambda proof: replace(proof, **{k: proof.cpu if v == "same" else v for k, v in change.items()})
    with caplog.at_level("WARNING"):
        assert stage.call("add", 1, 1) == 2
    assert stage.record.gpu_zero_copy_ok is False
    assert any(told in record.message for record in caplog.records), caplog.text
    assert any("demoted" in line for line in stage.pool.story(stage.plan))


def test_a_sound_worker_is_not_demoted(stage):
    stage.serve()
    assert stage.record.gpu_zero_copy_ok is True


def test_a_proof_that_is_no_proof_is_the_backends_error_and_no_trust(stage):
    stage.spy.after["verify"] = lambda proof: {"cpu": proof.cpu}
    with pytest.raises(errors.BackendError, match="verify returned a dict; a Proof is wanted"):
        stage.call("add", 1)


@over("in-process", "venv", "pixi")
def test_the_canary_is_another_each_time_and_larger_than_what_a_frame_carries_inline(stage):
    seen = []
    verify = stage.relay.verify
    stage.relay.verify = lambda process, lanes, canary: seen.append(canary) or verify(process, lanes, canary)
    for _ in range(2):
        stage.serve()
        stage.pool.kill(stage.plan)
    assert len({canary.content for canary in seen}) == 2
    assert all(len(canary.content) >= 64 * 1024 for canary in seen)

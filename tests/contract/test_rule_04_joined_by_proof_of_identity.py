"""Rule 4: a worker is let in by a mutual proof of identity with a one-time key; nobody else can come in its place."""

from dataclasses import replace
from pathlib import Path

import pytest

from comfy_env import errors
from comfy_env.transport import handshake
from tests.contract.worlds import REAL, over


@over("in-process", *REAL)
@pytest.mark.parametrize("other", [
    {"auth_key": b"another key of thirty-two bytes.."}, {"nonce": "0" * 32}, {"generation": 7}, {"env": "another"},
], ids=lambda other: next(iter(other)))
def test_a_worker_that_is_not_who_it_must_be_is_refused_by_name_and_the_next_is_let_in(stage, monkeypatch, other):
    """The host expects another worker than the one it started: one of another key, of an older host, of another generation."""
    def join(endpoint, process, launch):
        return handshake.join(endpoint, process, replace(launch, **other))

    monkeypatch.setattr("comfy_env.backends.local.join", join)
    with pytest.raises(errors.SpawnFailed) as caught:
        stage.call("add", 1)
    assert isinstance(caught.value, errors.TransportRefused | errors.DiedBeforeJoining)
    assert (caught.value.env, caught.value.generation) == (stage.plan.key, 1)
    monkeypatch.undo()
    assert stage.call("add", 1, 1) == 2
    assert stage.record.generation == 2


def test_each_birth_has_a_key_and_a_nonce_of_its_own(stage):
    for _ in range(3):
        stage.serve()
        stage.pool.kill(stage.plan)
    assert len({launch.auth_key for launch in stage.spy.launches}) == 3
    assert len({launch.nonce for launch in stage.spy.launches}) == 3
    assert all(len(launch.auth_key) == 32 and launch.host_nonce == stage.spy.launches[0].host_nonce for launch in stage.spy.launches)


@over(*REAL)
def test_the_key_is_in_no_variable_no_argument_and_no_file_of_the_worker(stage):
    stage.serve()
    launch, pid = stage.spy.launches[0], stage.record.pid
    told = b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("environ", "cmdline"))
    told += b"".join(path.read_bytes() for path in launch.run_folder.rglob("*") if path.is_file())
    assert launch.auth_key.hex().encode() not in told and launch.auth_key not in told
    assert launch.nonce.encode() in told, "the nonce, which is no secret, is what descendants are known by"
    assert launch.auth_key.hex() not in repr(launch)


@over(*REAL)
def test_there_is_nothing_that_a_stranger_could_connect_to(stage):
    stage.serve()
    assert stage.spy.launches[0].endpoint.listening_fd() is None
    assert stage.spy.launches[0].endpoint.listener is None


@pytest.mark.parametrize("what", ["auth_key", "nonce", "host_nonce", "generation", "env", "endpoint"])
def test_a_wrapper_that_changes_an_identity_is_refused_naming_what_it_changed(stage, what):
    given = {"auth_key": b"x" * 32, "generation": 5, "endpoint": object()}
    plain = stage.spy.comfy_env_launch

    class Meddler:
        pass

    relay = stage.relay
    stage.spy.variables = {"UNTOUCHED": "yes"}
    assert plain is not None and relay is not None
    changed = given.get(what, "another")

    from comfy_env.hooks import hookimpl

    def comfy_env_launch(self, launch):
        return replace(launch, **{what: changed})

    Meddler.comfy_env_launch = hookimpl(comfy_env_launch)
    relay._manager.admit(Meddler(), "the meddler", "wrapper")
    with pytest.raises(errors.BackendError, match=f"changed {what}"):
        stage.call("add", 1)
    assert stage.spy.told == []

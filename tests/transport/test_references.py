"""An object that stays in a worker: what its own worker, another one and the host make of it."""

from __future__ import annotations

import gc

import pytest

from comfy_env.errors import EncodeRefused
from comfy_env.transport import canary
from comfy_env.values import RemoteRef
from tests.arena.kit import PACK
from tests.transport.workers import joined, until


@pytest.fixture(scope="module")
def a():
    with joined(env="a") as worker:
        canary.send(worker.session, canary.make(1))
        yield worker


@pytest.fixture(scope="module")
def b():
    with joined(env="b") as worker:
        canary.send(worker.session, canary.make(2))
        yield worker


@pytest.fixture(scope="module")
def stranger():
    """A worker whose environment does not have the pack."""
    with joined(env="stranger", import_roots=(PACK,)) as worker:
        yield worker


def test_the_host_gets_a_reference_and_its_own_worker_the_same_object_again(a):
    model = a.value("wire_pack:make_model")
    assert isinstance(model, RemoteRef)
    assert (model.env, model.type_name) == ("a", "wire_pack.Model")
    assert a.value("wire_pack:is_the_last", model)


def test_another_worker_that_has_the_class_gets_an_object_like_it(a, b):
    model = a.value("wire_pack:make_model")
    assert b.value("wire_pack:describe_model", model) == ["wire_pack", "Model", [1, 2]]
    assert b.value("wire_pack:models_of", {"x": model, "y": model})["y"] == ["wire_pack", "Model", [1, 2]]
    assert a.value("wire_pack:is_the_last", model)


def test_what_such_an_object_holds_is_not_copied_on_its_way_through_the_host(a, b):
    heavy = a.value("wire_pack:make_heavy", 100_000)
    before = b.session.traffic
    assert b.value("wire_pack:total_of", heavy) == 100_000
    after = b.session.traffic
    assert after["copied"] == before["copied"]
    assert after["passed"] - before["passed"] > 400_000


def test_another_worker_without_the_class_refuses_it_by_class_and_producer(a, stranger):
    model = a.value("wire_pack:make_model")
    answer = stranger.call("arena_pack:nothing", model)
    assert (answer.kind.name, answer.refusal) == ("REFUSED", "decode")
    assert "wire_pack.Model of env a" in answer.text and "No module named 'wire_pack'" in answer.text
    assert stranger.value("arena_pack:echo", 1) == 1


def test_an_object_that_cannot_be_written_is_refused_at_the_sender_by_its_path(a, b):
    odd = a.value("wire_pack:make_unwritable")
    with pytest.raises(EncodeRefused, match=r"args\[0\]\['m'\] is a wire_pack.Unwritable .* env a .* env b: .*lambda") as raised:
        b.value("wire_pack:echo", {"m": odd})
    assert "same environment" in str(raised.value)
    assert b.value("wire_pack:echo", 1) == 1


def test_an_object_of_a_worker_that_is_gone_is_refused_by_name(b):
    with joined(env="gone") as worker:
        model = worker.value("wire_pack:make_model")
        worker.session.close()
    with pytest.raises(EncodeRefused, match="wire_pack.Model .* env gone"):
        b.value("wire_pack:echo", model)
    del worker
    gc.collect()
    with pytest.raises(EncodeRefused, match="generation 1 of env gone is gone"):
        b.value("wire_pack:echo", model)


def test_an_object_of_the_hosts_own_is_refused_and_a_dict_that_looks_like_a_reference_is_a_dict(a):
    with pytest.raises(EncodeRefused, match="cannot cross to a worker"):
        a.value("wire_pack:echo", object())
    looks = {"__remote__": True, "id": 1, "type": "wire_pack.Model", "env": "a"}
    assert a.value("wire_pack:echo", looks) == looks


def test_an_object_can_be_fetched_while_its_worker_waits_for_its_callback(a, b):
    model = a.value("wire_pack:make_model")
    got = a.value("wire_pack:ask", "other", callbacks={"other": lambda: b.value("wire_pack:describe_model", model)})
    assert got == ["wire_pack", "Model", [1, 2]]


def test_references_that_were_passed_on_are_dropped_as_any_other(a, b):
    model = a.value("wire_pack:make_model")
    b.value("wire_pack:describe_model", model)
    before = a.session.codec.references
    del model
    gc.collect()
    until(lambda: a.session.codec.references == before - 1)

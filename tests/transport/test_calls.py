"""Calls in a real worker: how they return, raise, are refused, and what that leaves behind."""

from __future__ import annotations

import gc
import sys

import pytest

from comfy_env.errors import EncodeRefused, ReferenceLost
from comfy_env.transport import canary
from comfy_env.values import NodeContext, RemoteRef
from comfy_env.worker.wire.kinds import Kind
from tests.transport.workers import interpreter, joined

OTHERS = [v for v in ("3.9", "3.10", "3.12", "3.13") if v != f"3.{sys.version_info[1]}"]


@pytest.fixture(scope="module")
def worker():
    with joined() as started:
        canary.send(started.session, canary.make(1))   # the arena is there from now on
        yield started


def test_values_come_back_as_they_went(worker):
    value = {"a": [1, (2.5, None)], b"k": {"x"}, (1, 2): "é"}
    assert worker.value("wire_pack:echo", value) == value
    assert worker.value("wire_pack:echo", 1, kwargs={"b": 2}) == ((1,), {"b": 2})


def test_a_raised_exception_is_told_with_class_arguments_and_traceback(worker):
    answer = worker.call("wire_pack:fail", "ValueError", "bad", 3)
    assert answer.kind == Kind.RAISED
    assert (answer.error.type_name, answer.error.args, answer.error.text) == ("ValueError", ("bad", 3), "('bad', 3)")
    assert "wire_pack.py" in answer.error.traceback
    assert "calls.py" not in answer.error.traceback
    rebuilt = answer.error.exception()
    assert type(rebuilt) is ValueError
    assert rebuilt.args == ("bad", 3)


@pytest.mark.row("X4")
@pytest.mark.parametrize(("target", "type_name"), [
    ("wire_pack:unprintable", "wire_pack.unprintable.<locals>.Odd"), ("wire_pack:sys_exit", "SystemExit"),
    ("wire_pack:recurse", "RecursionError"), ("no_such_module:f", "ModuleNotFoundError"), ("wire_pack:no_such", "AttributeError"),
])
def test_whatever_a_function_raises_ends_its_call_and_not_the_worker(worker, target, type_name):
    answer = worker.call(target)
    assert answer.kind == Kind.RAISED
    assert answer.error.type_name == type_name
    assert worker.value("wire_pack:echo", 1) == 1


@pytest.mark.row("X5")
@pytest.mark.parametrize(("name", "args"), [
    ("make", ("lambda",)), ("make", ("generator",)), ("make", ("file",)), ("nested", (1_000_000,)),
])
def test_a_result_that_cannot_cross_is_a_named_refusal_and_the_lane_goes_on(worker, name, args):
    answer = worker.call(f"wire_pack:{name}", *args)
    assert (answer.kind, answer.refusal) == (Kind.REFUSED, "encode")
    assert answer.text.startswith("value is ")
    assert worker.value("wire_pack:echo", 1) == 1


@pytest.mark.row("X5")
def test_a_recursive_result_arrives_as_such(worker):
    value = worker.value("wire_pack:make", "recursive")
    assert value[1] is value


@pytest.mark.parametrize("name", ["object", "local", "module"])
def test_an_object_nobody_else_can_have_comes_as_a_reference(worker, name):
    assert isinstance(worker.value("wire_pack:make", name), RemoteRef)


def test_a_reference_given_back_is_the_same_object_again(worker):
    ref = worker.value("wire_pack:make_model")
    assert ref.type_name == "wire_pack.Model"
    assert worker.value("wire_pack:is_the_last", ref) is True
    assert worker.value("wire_pack:types_of", {"in": [ref]}, ref) == ["builtins.dict", "wire_pack.Model"]


def test_a_reference_let_go_is_forgotten_by_the_worker(worker):
    ref = worker.value("wire_pack:make_model")
    number = ref.id
    del ref
    gc.collect()
    worker.value("wire_pack:echo", 1)
    answer = worker.call("wire_pack:is_the_last", RemoteRef("wire", 1, number, "Model"))
    assert (answer.kind, answer.refusal) == (Kind.REFUSED, "reference")
    assert worker.session.codec.references == 0


def test_a_reference_of_a_lost_generation_is_refused_before_a_byte_is_sent(worker):
    with pytest.raises(ReferenceLost, match="generation 9"):
        worker.call("wire_pack:echo", RemoteRef("wire", 9, 1, "Model"))


def test_a_class_of_the_packs_own_module_crosses_as_a_reference_and_returns(worker):
    ref = worker.value("wire_pack:record", 5)
    assert ref.type_name == "wire_pack.Record"
    assert worker.value("wire_pack:types_of", ref) == ["wire_pack.Record"]


def test_the_node_of_a_call_is_known_in_the_worker(worker):
    message = {"target": "wire_pack:node", "args": (), "kwargs": {}, "node": NodeContext("7", "p", "C")}
    answer = worker.session.call(message, request=10_000, generation=1)
    assert answer.value == {"node_id": "7", "prompt_id": "p", "class_type": "C"}
    assert worker.value("wire_pack:node") is None


def test_a_closure_runs_by_value_in_a_worker_of_the_same_minor_version(worker):
    factor = 3

    def scale(values):
        return [v * factor for v in values], sys.version_info[:2]

    assert worker.value(scale, [1, 2]) == ([3, 6], sys.version_info[:2])
    assert worker.value("wire_pack:types_of", scale, len) == ["builtins.function", "builtins.builtin_function_or_method"]


@pytest.mark.parametrize("version", OTHERS)
def test_the_same_closure_to_another_minor_is_refused_before_a_byte_is_sent(version):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} answers here")
    factor = 3
    with joined(python) as other:
        with pytest.raises(EncodeRefused) as raised:
            other.call(lambda x: x * factor, 1)
        assert f"{sys.version_info[0]}.{sys.version_info[1]}." in str(raised.value)
        assert f"Python {version}." in str(raised.value)
        assert "pass it by name" in str(raised.value)
        assert other.value("wire_pack:echo", 1) == 1


def test_a_closure_over_what_the_worker_lacks_is_refused_by_the_worker_by_name(worker):
    answer = worker.call(test_a_recursive_result_arrives_as_such)
    assert (answer.kind, answer.refusal) == (Kind.REFUSED, "decode")
    assert "tests" in answer.text


def test_an_argument_that_cannot_cross_names_its_path_and_sends_nothing(worker):
    with pytest.raises(EncodeRefused, match=r"^args\[1\]\['opts'\]\[0\] is of type"):
        worker.call("wire_pack:echo", 1, {"opts": [memoryview(b"x")]})
    assert worker.value("wire_pack:echo", 1) == 1


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_the_table_crosses_to_every_python_and_back(version):
    from tests.wire.test_values import EXACT

    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} answers here")
    plain = [v for v in EXACT if not type(v).__module__.startswith("tests.") and "Colour" not in repr(v) and v == v]
    with joined(python) as other:
        assert other.value("wire_pack:echo", plain) == plain


@pytest.mark.parametrize("size", [10, 20_000, 3_000_000])
def test_arrays_of_any_size_cross_to_a_worker_that_has_numpy(worker, size):
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(size, dtype="f4")
    assert numpy.array_equal(worker.value("wire_pack:numpy_double", array), array * 2)


def test_large_plain_values_cross(worker):
    value = {"b": bytes(70 * 1024 * 1024), "t": "x" * 1_000_000}
    assert worker.value("wire_pack:echo", value) == value


def test_held_bytes_are_told_with_every_answer(worker):
    worker.value("wire_pack:echo", 1)
    assert worker.session.held == 0


def test_torch_is_imported_by_neither_end_for_values_that_need_it_not():
    code = """
import sys
from tests.transport.workers import joined
with joined() as w:
    w.value("wire_pack:echo", [1, {"a": (2.5, b"x")}])
    there = w.value("wire_pack:where")["modules"]
for name in ("torch", "numpy", "PIL", "cloudpickle"):
    assert name not in there, f"worker: {name}"
    assert name not in sys.modules, f"host: {name}"
"""
    import subprocess
    from pathlib import Path

    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

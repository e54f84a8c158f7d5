"""Values arrive exactly as they were, or are refused by name with the path to what cannot cross."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import http
import io
import math
import pathlib
import signal
import types
import uuid
import weakref
import zoneinfo
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfy_env.errors import DecodeRefused, EncodeRefused, NodeRaised, ReferenceLost
from comfy_env.transport.codec import HeldRef
from comfy_env.values import RemoteRef
from comfy_env.worker.wire.faults import DecodeFault, EncodeFault, ReferenceGone
from tests.wire.sides import Ends


@pytest.fixture
def ends():
    return Ends()


class Point(NamedTuple):
    x: Any
    y: Any


class Colour(enum.Enum):
    RED = "r"
    BLUE = [1, 2]


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Plain:
    a: Any
    b: Any = 2


@dataclasses.dataclass(frozen=True)
class Slotted:
    __slots__ = ("a",)
    a: Any


@dataclasses.dataclass
class Guarded:
    a: Any

    def __post_init__(self):
        raise AssertionError("no code of a class runs")

    def __setattr__(self, name, value):
        raise AssertionError("no code of a class runs")


class OddError(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


ZONE = datetime.timezone(datetime.timedelta(hours=2), "X")
EXACT = [
    None, True, False, 0, -1, 2**200, 1.5, math.inf, "text", "\ud800", "\0", b"", b"bytes", bytearray(b"b"), 1 + 2j, ..., NotImplemented,
    (), (1,), (1, (2, [3])), [], [[]], {}, {1: 2, (1, 2): [3], None: 4, b"k": 5, 1.5: 6}, set(), {1, "a"}, frozenset({1, (2,)}),
    range(3, 30, 4), slice(None, 3, 2), collections.OrderedDict([("b", 1), ("a", 2)]), collections.Counter("aab"),
    collections.defaultdict(list, {1: [2]}), collections.defaultdict(None, {1: 2}), collections.deque([1, 2, 3], 3), collections.deque(),
    types.SimpleNamespace(a=1, b=[2]), decimal.Decimal("1.10"), decimal.Decimal("NaN").copy_sign(decimal.Decimal(-1)),
    fractions.Fraction(3, 7), uuid.UUID(int=5), datetime.date(2020, 2, 29), datetime.time(1, 2, 3, 4, tzinfo=ZONE, fold=1),
    datetime.datetime(2020, 1, 1, 2, 3, 4, 5, ZONE, fold=1), datetime.datetime(2020, 1, 1), datetime.timedelta(-3, 5, 7),
    datetime.timezone.utc, ZONE, datetime.datetime(2020, 7, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
    pathlib.Path("/a/b c"), pathlib.PurePosixPath("x"), pathlib.PureWindowsPath("c:/x"), array.array("d", [1.0, 2.5]),
    signal.SIGINT, http.HTTPStatus.OK, Colour.RED, Colour.BLUE, Level.LOW, Rights.READ | Rights.WRITE, Point(1, [2]),
    Plain(1, [2]), Slotted({"a": 1}), [Colour.RED, Colour.RED], {Colour.RED: Plain(None)},
]


@pytest.mark.parametrize("value", EXACT, ids=lambda v: repr(v)[:40])
def test_a_value_of_the_table_arrives_exactly(ends, value):
    back = ends.there_and_back(value)
    assert type(back) is type(value)
    assert repr(back) == repr(value)
    if value == value:
        assert back == value


def test_what_is_the_same_object_stays_the_same_object(ends):
    shared = [1]
    back = ends.there_and_back({"a": shared, "b": [shared, shared], "e": (Colour.RED, Colour.RED)})
    assert back["a"] is back["b"][0] is back["b"][1]
    assert back["e"][0] is Colour.RED


def test_values_that_contain_themselves_arrive_as_such(ends):
    loop: list = [1]
    loop.append(loop)
    space = types.SimpleNamespace()
    space.me = space
    record = Plain(1)
    record.b = {"me": record}
    queue = collections.deque()
    queue.append(queue)
    loop, space, record, queue = ends.there_and_back([loop, space, record, queue])
    assert loop[1] is loop
    assert space.me is space
    assert record.b["me"] is record
    assert queue[0] is queue


def test_no_code_of_a_dataclass_runs_on_either_end(ends):
    value = object.__new__(Guarded)
    value.__dict__["a"] = [1]
    assert ends.there_and_back(value).__dict__ == {"a": [1]}


def test_a_factory_of_the_closed_list_still_works_and_any_other_is_refused(ends):
    assert ends.to_host(collections.defaultdict(list))["new"] == []
    with pytest.raises(EncodeRefused, match="factory"):
        ends.to_worker(collections.defaultdict(Plain))


def test_an_exception_as_a_value_keeps_class_and_arguments_without_running_its_init(ends):
    error = OddError(1, 2)
    error.note = [3]
    back = ends.to_host(error)
    assert type(back) is OddError
    assert back.args == ("1 and 2",)
    assert back.note == [3]
    gone = ends.to_host(FileNotFoundError(2, "gone", "/f"))
    assert (gone.errno, gone.filename) == (2, "/f")


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner, max_size=5),
    max_leaves=25,
)


@settings(max_examples=150, deadline=None)
@given(json_like)
def test_any_nested_plain_value_arrives_exactly(value):
    back = Ends().there_and_back(value)
    assert repr(back) == repr(value)


# ---------------------------------------------------------------- refusals

class Opts:
    def __init__(self, value):
        self.opts = value


@pytest.mark.parametrize(("value", "path"), [
    ([1, {"a": io.StringIO()}], r"value\[1\]\['a'\] "),
    (types.SimpleNamespace(opts=[0, 0, 0, types.SimpleNamespace(fn=io.StringIO())]), r"value\.opts\[3\]\.fn "),
    (Point(1, {2: io.StringIO()}), r"value\.y\[2\] "),
    (Plain(io.StringIO()), r"value\.a "),
    (io.StringIO(), "value "),
    ({"k": (Opts([1]),)}, r"value\['k'\]\[0\] "),
])
def test_a_refusal_names_the_path_at_the_sender(ends, value, path):
    with pytest.raises(EncodeRefused, match=f"^{path}is of type"):
        ends.to_worker(value)


def test_a_message_starts_its_paths_at_its_own_keys(ends):
    with pytest.raises(EncodeRefused, match=r"^args\[0\]\.opts is of type"):
        ends.host.encode({"args": (types.SimpleNamespace(opts=io.StringIO()),), "kwargs": {}}, message=True)


@pytest.mark.row("X5")
def test_depth_beyond_measure_is_refused_at_the_sender_and_the_codec_goes_on(ends):
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(EncodeRefused, match="nested too deeply"):
        ends.to_worker(deep)
    with pytest.raises(EncodeFault, match="nested too deeply"):
        ends.guest.encode(deep)
    assert ends.there_and_back([1]) == [1]


HERE_ONLY = {"lambda": lambda: 1, "generator": (n for n in ()), "file": io.BytesIO(), "weakref": weakref.ref(Opts)}


@pytest.mark.row("X5")
@pytest.mark.parametrize("value", HERE_ONLY.values(), ids=HERE_ONLY)
def test_what_means_nothing_outside_its_worker_is_refused_there_by_name(ends, value):
    with pytest.raises(EncodeFault, match="only means something in the worker"):
        ends.guest.encode([value])
    assert ends.to_host(1) == 1


def test_a_class_of_main_or_of_a_function_is_refused_by_the_host(ends):
    @dataclasses.dataclass
    class Local:
        a: int

    with pytest.raises(EncodeRefused, match="Local"):
        ends.to_worker(Local(1))


def test_a_class_the_worker_cannot_import_is_refused_by_its_name(ends, monkeypatch):
    payload, buffers = ends.host.encode(Plain(1))
    monkeypatch.setattr(f"{__name__}.Plain", None)
    with pytest.raises(DecodeFault, match="test_values.Plain"):
        ends.guest.decode(payload, buffers)


# ---------------------------------------------------------------- references

class Model:
    """Has no row anywhere."""


def test_an_object_without_a_row_stays_and_comes_back_as_the_same_object(ends):
    model = Model()
    ref = ends.to_host({"model": model})["model"]
    assert isinstance(ref, RemoteRef)
    assert ref.type_name == f"{__name__}.Model"
    assert ends.to_worker([ref])[0] is model


def test_a_reference_let_go_is_dropped_once_per_time_it_was_sent(ends):
    model = Model()
    first, second = ends.to_host(model), ends.to_host([model])
    assert ends.host.references == 2
    assert first.id == second[0].id
    del first
    ends.resident.drop(ends.host.take_drops())
    assert len(ends.resident) == 1
    del second
    ends.resident.drop(ends.host.take_drops())
    assert len(ends.resident) == 0
    assert ends.host.references == 0


def test_a_refused_message_leaves_nothing_resident(ends):
    with pytest.raises(EncodeFault):
        ends.guest.encode([Model(), Plain(1), io.StringIO()])
    assert len(ends.resident) == 0


def test_a_class_the_host_does_not_have_loaded_becomes_a_reference(ends, monkeypatch):
    record = Plain([1, {"x": (2,)}])
    payload, buffers = ends.guest.encode([record, Colour.RED, OddError(1, 2)])
    for name in ("Plain", "Colour", "OddError"):
        monkeypatch.delattr(f"{__name__}.{name}")
    record_ref, colour_ref, error = ends.host.decode(payload, buffers)
    assert isinstance(record_ref, RemoteRef)
    assert ends.to_worker(record_ref) is record
    assert colour_ref.type_name.endswith(".Colour")
    assert isinstance(error, NodeRaised)
    assert error.remote_type.endswith(".OddError")


def test_a_class_the_host_has_is_rebuilt_and_nothing_stays_behind(ends):
    assert ends.to_host([Plain(1), Colour.RED, Point(1, 2)]) == [Plain(1), Colour.RED, Point(1, 2)]
    ends.resident.drop(ends.host.take_drops())
    assert len(ends.resident) == 0
    assert ends.host.references == 0


def test_a_reference_of_another_environment_or_generation_is_refused_by_name(ends):
    with pytest.raises(EncodeRefused, match=r"^value\[0\] is a Model that stayed in the worker of env there"):
        ends.to_worker([RemoteRef("there", 1, 1, "Model")])
    with pytest.raises(ReferenceLost, match="generation 7"):
        ends.to_worker(RemoteRef("here", 7, 1, "Model"))


def test_a_number_the_worker_does_not_hold_is_refused_by_the_worker(ends):
    with pytest.raises(ReferenceGone):
        ends.to_worker(RemoteRef("here", 1, 999, "Model"))


def test_a_reference_cannot_be_rewritten(ends):
    ref = ends.to_host(Model())
    assert isinstance(ref, HeldRef)
    with pytest.raises(AttributeError):
        ref.id = 5


# ---------------------------------------------------------------- callables

def test_a_callable_to_another_python_is_refused_before_it_is_written_naming_both():
    ends = Ends({"cache_tag": "cpython-39", "python": "3.9.18"})
    with pytest.raises(EncodeRefused, match=r"value\['f'\] is the callable .*<lambda>.*Python 3\.\d+\.\d+ .*Python 3\.9\.18") as raised:
        ends.to_worker({"f": lambda: 1})
    assert "pass it by name" in str(raised.value)


def test_a_callable_is_never_accepted_by_the_host(ends):
    payload, buffers = ends.host.encode(lambda: 1)
    with pytest.raises(DecodeRefused, match="VALUE"):
        ends.host.decode(payload, buffers)

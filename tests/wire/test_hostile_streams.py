"""A worker's stream runs no code but the reconstructors and changes no host object."""

from __future__ import annotations

import collections
import copyreg
import dataclasses
import enum
import os
import pickle
import random
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import numpy
import pytest

from comfy_env.errors import DecodeRefused
from comfy_env.transport.codec import HostCodec
from comfy_env.worker.wire import rows, sealed
from comfy_env.worker.wire.payload import Codec
from tests.wire.sides import Ends

M = sealed.MODULE.encode()


@pytest.fixture
def host():
    return HostCodec("here", 1, {})


class Colour(enum.Enum):
    RED = "r"


class Bag(list, enum.Enum):
    FULL = [1, 2]


@dataclasses.dataclass
class Trap:
    """Its methods must never run in a host."""

    a: object = None

    def __setstate__(self, state):
        HITS.append("setstate")

    def __call__(self, *args):
        HITS.append("call")

    def append(self, item):
        HITS.append("append")

    def extend(self, items):
        HITS.append("extend")

    def add(self, item):
        HITS.append("add")

    def __setitem__(self, key, value):
        HITS.append("setitem")


HITS: list[str] = []
HERE = __name__.encode()


def text(value: bytes) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value


def marker(name: bytes) -> bytes:
    return text(M) + text(name) + b"\x93"


def named(kind: bytes, qualname: bytes, content: bytes) -> bytes:
    """A value that names a class of this module."""
    return marker(kind) + b"(" + text(HERE) + text(qualname) + b"K\x00" + content + b"tR"


RED = named(b"MEMBER", b"Colour", text(b"RED") + b"N\x86")
FULL = named(b"MEMBER", b"Bag", text(b"FULL") + b"N\x86")
TRAP = named(b"RECORD", b"Trap", b"N")
STATE = b"}" + text(b"a") + b"K\x01s"
ARRAY = marker(b"ARRAY") + b"(" + text(b"<i4") + b"K\x01\x85NNC\x04\x01\x02\x03\x04tR"
META = b"(" + text(b"meta") + text(b"<i4")
STRUCT = b"(" + text(b"struct") + b"(" + text(b"a") + b"t(" + text(b"<i4") + b"tK\x00\x85N\x85K\x04\x89"


def window(shown: bytes, size: bytes = b"K\x02") -> bytes:
    """A view of two numbers, one step apart."""
    return b"\x80\x05" + marker(b"WINDOW") + b"(" + shown + size + b"\x85K\x00\x85K\x00tR."


STREAMS = {
    "global of os": b"\x80\x05cposix\nsystem\n(S'true'\ntR.",
    "stack global of builtins": b"\x80\x05" + text(b"builtins") + text(b"exec") + b"\x93.",
    "global of our own module that is no marker": b"\x80\x05" + text(M) + text(b"Sealed") + b"\x93.",
    "dotted name through a marker": b"\x80\x05" + text(M) + text(b"SPACE.__class__") + b"\x93.",
    "inst": b"(ios\nsystem\n.",
    "persistent id": b"Px\n.",
    "binary persistent id": b"\x80\x05K\x01Q.",
    "build on a sealed callable": b"\x80\x05" + marker(b"SPACE") + STATE + b"b.",
    "slot build on a sealed callable": b"\x80\x05" + marker(b"SPACE") + b"N" + b"}" + text(b"_call") + b"K\x01s\x86b.",
    "newobj on a sealed callable": b"\x80\x05" + marker(b"SPACE") + b")\x81.",
    "newobj_ex on a sealed callable": b"\x80\x05" + marker(b"SPACE") + b")}\x92.",
    "obj on a sealed callable that needs more": b"(" + marker(b"ARRAY") + b"o.",
    "append on a sealed callable": b"\x80\x05" + marker(b"SPACE") + b"K\x01a.",
    "setitem on a sealed callable": b"\x80\x05" + marker(b"SPACE") + b"K\x01K\x02s.",
    "additems on a sealed callable": b"\x80\x05" + marker(b"SPACE") + b"(K\x01\x90.",
    "build on an enum member": b"\x80\x05" + RED + STATE + b"b.",
    "append on an enum member that is a list": b"\x80\x05" + FULL + b"K\x09a.",
    "appends on an enum member that is a list": b"\x80\x05" + FULL + b"(K\x09e.",
    "build on a dataclass": b"\x80\x05" + TRAP + STATE + b"b.",
    "call of a dataclass": b"\x80\x05" + TRAP + b")R.",
    "append on a dataclass": b"\x80\x05" + TRAP + b"K\x01a.",
    "appends on a dataclass": b"\x80\x05" + TRAP + b"(K\x01e.",
    "additems on a dataclass": b"\x80\x05" + TRAP + b"(K\x01\x90.",
    "setitem on a dataclass": b"\x80\x05" + TRAP + b"K\x01K\x02s.",
    "setitems on a dataclass": b"\x80\x05" + TRAP + b"(K\x01K\x02u.",
    "build on an array": b"\x80\x05" + ARRAY + b"(K\x01K\x02tb.",
    "fill of an enum member": b"\x80\x05" + marker(b"FILL") + RED + STATE + b"\x86R.",
    "fill of a dataclass with what is no dict": b"\x80\x05" + marker(b"FILL") + TRAP + b"K\x01\x86R.",
    "member that is not there": b"\x80\x05" + named(b"MEMBER", b"Colour", text(b"mro") + b"N\x86") + b".",
    "reference that is no number": b"\x80\x05" + marker(b"REF") + text(b"x") + text(b"y") + b"\x86R.",
    "date of another class": b"\x80\x05" + marker(b"LATE") + text(b"os") + b"\x85R.",
    "decimal made of a list": b"\x80\x05" + marker(b"LATE") + text(b"Decimal") + b"]\x86R.",
    "array of python objects over bytes": b"\x80\x05" + ARRAY.replace(text(b"<i4"), text(b"|O")) + b".",
    "array larger than its bytes": b"\x80\x05" + ARRAY.replace(b"K\x01\x85", b"K\x09\x85") + b".",
    "array of another class of records": b"\x80\x05" + ARRAY.replace(text(b"<i4"), STRUCT + text(b"dtype") + b"t") + b".",
    "array whose metadata are no dict": b"\x80\x05" + ARRAY.replace(text(b"<i4"), META + b"]t") + b".",
    "array of objects that is one of numbers": b"\x80\x05" + marker(b"ITEMS") + b"(K\x01\x85" + text(b"<i4") + b"NtR.",
    "window over a number": window(b"K\x05"),
    "window over an enum member that is a list": window(FULL),
    "window of a negative size": window(ARRAY, b"J\xff\xff\xff\xff"),
    "window of no size": window(ARRAY, b"K\x00"),
    "empty": b"",
    "cut short": b"\x80\x05\x95",
    "nothing but stop": b".",
}


assert numpy   # an array's reconstructor imports it, which is no change that counts


def _state() -> str:
    """A picture of everything a stream could want to change."""
    sealed_objects = {k: v for k, v in vars(sealed).items() if isinstance(v, sealed.Marker)}
    functions = [f for table in (rows.PLAIN, rows.BOUND) for f in table.values() if hasattr(f, "__defaults__")]
    return repr((Colour.RED.__dict__, list(Bag.FULL), Trap.__dict__, [(f.__defaults__, f.__dict__) for f in functions],
                 sorted((k, v.name) for k, v in sealed_objects.items()), sorted(sys.modules), os.environ.get("HOSTILE")))


@pytest.mark.row("X2", "X3")
@pytest.mark.parametrize("name", STREAMS)
def test_a_hostile_stream_is_refused_and_changes_nothing(host, name):
    HITS.clear()
    host.encode(1)
    before = _state()
    with pytest.raises(DecodeRefused):
        host.decode(STREAMS[name])
    assert HITS == []
    assert _state() == before
    assert host.decode(*Ends().guest.encode({"a": [Colour.RED]})) == {"a": [Colour.RED]}


def test_a_length_that_is_claimed_takes_no_memory_before_its_bytes_came(host):
    tracemalloc.start()
    try:
        with pytest.raises(DecodeRefused):
            host.decode(b"\x80\x05" + TRAP + b"\x96" + (1 << 28).to_bytes(8, "little") + b"x.")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_pieces_these_streams_are_made_of_are_sound(host):
    assert host.decode(b"\x80\x05" + RED + b".") is Colour.RED
    assert host.decode(b"\x80\x05" + FULL + b".") is Bag.FULL
    assert type(host.decode(b"\x80\x05" + TRAP + b".")) is Trap
    assert host.decode(b"\x80\x05" + ARRAY + b".").tolist() == [67305985]
    assert host.decode(window(ARRAY)).tolist() == [67305985] * 2
    plain = ARRAY.replace(text(b"<i4"), STRUCT + text(b"void") + b"t")
    assert host.decode(b"\x80\x05" + plain + b".").tolist() == [(67305985,)]
    assert host.decode(b"\x80\x05" + ARRAY.replace(text(b"<i4"), META + b"}t") + b".").tolist() == [67305985]


class Bomb:
    def __reduce__(self):
        return os.putenv, ("HOSTILE", "1")


@pytest.mark.row("X3")
@pytest.mark.parametrize("protocol", range(6))
def test_what_plain_pickle_writes_is_refused_in_every_protocol(host, protocol):
    for value in (Bomb(), os.system, collections.OrderedDict, Trap(), Exception("x"), [[{"a": Bomb()}]]):
        with pytest.raises(DecodeRefused, match="which no message may|cannot be read"):
            host.decode(pickle.dumps(value, protocol))


@pytest.mark.parametrize("code", [b"\x82\x07", b"\x83\x07\x00", b"\x84\x07\x00\x00\x00"])
def test_an_extension_code_is_refused_even_when_a_library_registered_and_used_it(host, code):
    copyreg.add_extension(__name__, "Trap", 7)
    try:
        assert pickle.loads(pickle.dumps(Trap, 4)) is Trap   # now it is in pickle's own cache
        with pytest.raises(DecodeRefused, match="opcode"):
            host.decode(b"\x80\x05" + code + b".")
    finally:
        copyreg.remove_extension(__name__, "Trap", 7)


def test_a_sealed_callable_has_nothing_to_change():
    call = sealed.Sealed(len)
    changes = (lambda: setattr(call, "_call", 1), lambda: setattr(call, "x", 1), lambda: delattr(call, "_call"), lambda: vars(call))
    for change in changes:
        with pytest.raises((AttributeError, TypeError)):
            change()
    assert call([1]) == 1


def test_a_host_never_imports_a_module_because_a_stream_names_it(host):
    assert "this" not in sys.modules
    stream = b"\x80\x05" + marker(b"MEMBER") + b"(" + text(b"this") + text(b"X") + b"K\x05" + text(b"A") + b"N\x86tR."
    assert host.decode(stream).type_name == "this.X"
    assert "this" not in sys.modules


def test_a_module_attribute_that_would_be_computed_is_not_asked_for(host):
    stream = b"\x80\x05" + marker(b"MEMBER") + b"(" + text(b"comfy_env") + text(b"WorkerPool") + b"K\x05" + text(b"A") + b"N\x86tR."
    loaded = set(sys.modules)
    assert host.decode(stream).type_name == "comfy_env.WorkerPool"
    assert set(sys.modules) == loaded


def test_a_worker_takes_no_name_but_the_table_either():
    guest: Codec = Ends().guest
    for name in ("global of os", "stack global of builtins", "persistent id", "inst"):
        with pytest.raises(Exception, match="no message may|cannot be read"):
            guest.decode(STREAMS[name])


FUZZ = """
import codecs, random, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from comfy_env.errors import DecodeRefused
from comfy_env.transport.codec import HostCodec
from comfy_env.worker.wire import sealed
from tests.wire.sides import Ends
from tests.wire.test_hostile_streams import Bag, Colour, Point, STREAMS, Trap

EVENTS = ("exec", "compile", "os.system", "subprocess.Popen", "import", "open", "socket.connect")
MODULES = ("decimal", "fractions", "uuid", "datetime", "zoneinfo", "pathlib", "array", "numpy", "torch", "PIL", "_decimal")

def audit(event, args):
    if armed and event in EVENTS and not harmless(event, args):
        raise SystemExit(f"fuzz ran {event} {args!r}")

def harmless(event, args):
    return event == "import" and args[0].partition(".")[0] in MODULES

armed = False
values = {"a": [1, 2.5, "x", b"y", None]}, [Colour.RED, Trap(1), Point((1, 2))], {(1, 2): {3}, "s": frozenset([4])}
seeds = [Ends().guest.encode(v)[0] for v in values]
seeds += [s for s in STREAMS.values() if len(s) > 4]
host, rng, refused = HostCodec("here", 1, {}), random.Random(int(sys.argv[1])), 0
import numpy, decimal, fractions, uuid, datetime, pathlib, array
codecs.lookup("raw_unicode_escape")
sys.addaudithook(audit)
armed = True
for _ in range(int(sys.argv[2])):
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.randrange(1, 6)):
        place = rng.randrange(len(data))
        kind = rng.randrange(3)
        if kind == 0:
            data[place] = rng.randrange(256)
        elif kind == 1:
            data[place:place] = rng.choice(seeds)[:rng.randrange(30)]
        elif len(data) > 2:
            del data[place]
    try:
        host.decode(bytes(data))
    except DecodeRefused:
        refused += 1
    except MemoryError:
        refused += 1
armed = False
assert Colour.RED.__dict__ == {"_value_": "r", "_name_": "RED", "__objclass__": Colour, "_sort_order_": 0}, Colour.RED.__dict__
assert list(Bag.FULL) == [1, 2]
print(refused)
"""


class Point(tuple):
    """A tuple subclass: stays where it is."""


@pytest.mark.row("X2")
@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.deadline(1500)])])
def test_fuzzed_streams_in_a_bounded_child_only_ever_are_refused_or_read(count):
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", textwrap.dedent(FUZZ), str(random.randrange(10**6)), str(count)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=80 + count / 1000)
    assert done.returncode == 0, (command[3], done.stderr[-2000:])
    assert int(done.stdout) > count / 2


BOMBS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from comfy_env.errors import DecodeRefused
from comfy_env.transport.codec import HostCodec
host = HostCodec("here", 1, {})
for bomb in (b"\\x80\\x05Nr\\xff\\xff\\xff\\x0f.", b"\\x80\\x05B\\xff\\xff\\xff\\x7fx.", b"\\x80\\x05\\x8d" + b"\\xff" * 7 + b"\\x0f.",
             b"\\x80\\x05]" + b"q\\x00h\\x00\\x86" * 60 + b".", b"\\x80\\x05\\x96" + b"\\xff" * 6 + b"\\x00\\x00."):
    try:
        host.decode(bomb)
    except (DecodeRefused, MemoryError):
        pass
assert host.decode(b"\\x80\\x05K\\x05.") == 5
print("lives")
"""


def test_streams_that_claim_much_memory_are_refused_or_read_within_a_bound():
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", BOMBS], cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "lives\n"), done.stderr[-2000:]

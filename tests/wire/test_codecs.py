"""Codecs of packs: objects of a pack's own classes as plain values, read where a codec of the same class and tag is known."""

import pytest

from comfy_env import errors
from comfy_env.transport.coded import SealedValue
from comfy_env.worker.codec import GuestSide
from comfy_env.worker.resident import Resident
from comfy_env.worker.wire import rows, sealed
from comfy_env.worker.wire.coded import codecs, opened
from comfy_env.worker.wire.encoder import Encoder
from comfy_env.worker.wire.payload import Codec

from .sides import Ends


class Mesh:
    def __init__(self, points):
        self.points = points

    def __eq__(self, other):
        return type(other) is type(self) and other.points == self.points

    __hash__ = None


class Finer(Mesh):
    pass


@pytest.fixture(autouse=True)
def table():
    """This process's codecs, none of which outlives its test."""
    yield codecs
    codecs._by_name.clear()


@pytest.fixture
def ends():
    return Ends()


def test_an_object_with_a_codec_crosses_by_value_however_deep_it_lies(ends, table):
    table.register(Mesh, lambda mesh: {"points": mesh.points}, lambda content: Mesh(content["points"]), tag="test.mesh")
    value = {"all": [Mesh([1, (2, b"x")]), 3]}
    assert ends.there_and_back(value) == value and len(ends.resident) == 0


def test_without_a_codec_it_stays_where_it_is(ends):
    assert isinstance(ends.to_host(Mesh([])), type(ends.to_host(object()))) and len(ends.resident) == 2


def test_a_host_that_knows_no_codec_passes_on_what_it_got(ends, table):
    table.register("Mesh", lambda mesh: mesh.points, tag="test.mesh")
    kept = ends.to_host([Mesh([7])])[0]
    assert type(kept) is SealedValue and repr(kept) == "<sealed Mesh (test.mesh)>"
    table.register("Mesh", lambda mesh: mesh.points, Mesh, tag="test.mesh")
    assert ends.to_worker([kept]) == [Mesh([7])]


def test_a_worker_that_knows_no_codec_refuses_by_name(ends, table):
    table.register(Mesh, lambda mesh: mesh.points, tag="test.mesh")
    with pytest.raises(TypeError, match=r"a Mesh \(test.mesh\), which this environment cannot read: no codec"):
        opened(ends.to_worker(Mesh([1])))


def test_a_codec_that_comes_with_the_pack_that_is_called_reads_what_arrived_before_it(ends, table):
    table.register(Mesh, lambda mesh: mesh.points, tag="test.mesh")
    arrived = ends.to_worker({"a": [Mesh([1])], "b": (Mesh([2]), 3)})
    table.register(Mesh, lambda mesh: mesh.points, Mesh, tag="test.mesh")
    assert opened(arrived) == {"a": [Mesh([1])], "b": (Mesh([2]), 3)}


def test_a_codec_is_found_by_class_and_tag(ends, table):
    table.register("Other", lambda other: None, lambda content: "of another class", tag="test.mesh")
    table.register("Mesh", lambda mesh: mesh.points, lambda content: "of another tag", tag="another")
    table.register("Mesh", lambda mesh: mesh.points, tag="test.mesh")
    assert type(ends.to_host(Mesh([1]))) is SealedValue


def test_a_subclass_is_written_as_its_base_is(ends, table):
    table.register("Mesh", lambda mesh: mesh.points, Mesh)
    assert ends.to_host(Finer([1])) == Mesh([1])


def test_functions_that_want_a_second_argument_get_one_that_changes_nothing(ends, table):
    table.register("Mesh", lambda mesh, recurse: recurse(mesh.points), lambda content, recurse: Mesh(recurse(content)))
    assert ends.to_host(Mesh([1])) == Mesh([1])


def test_what_pickle_or_this_codec_writes_by_itself_is_no_packs_to_change(ends, table):
    for name in ("dict", "list", "bytes"):
        table.register(name, lambda value: 1 / 0, lambda content: 1 / 0)
    assert ends.there_and_back({"a": [b"x"]}) == {"a": [b"x"]}


def test_a_codec_that_fails_is_named(ends, table):
    table.register(Mesh, lambda mesh: 1 / 0, tag="test.mesh")
    with pytest.raises(errors.EncodeRefused, match=r"'a'\]\[0\] cannot be written by its pack's codec 'test.mesh' \(Zero"):
        ends.host.encode({"a": [Mesh([])]})
    table.register(Mesh, lambda mesh: 1, lambda content: 1 / 0, tag="test.mesh")
    with pytest.raises(errors.DecodeRefused, match=r"a Mesh cannot be read by its pack's codec 'test.mesh' \(ZeroDivisionError"):
        ends.to_host(Mesh([]))


def test_a_host_that_lacks_what_the_codec_needs_passes_it_on_unopened(ends, table):
    def read(content):
        raise ModuleNotFoundError("No module named 'meshlib'")

    table.register(Mesh, lambda mesh: mesh.points, read)
    assert type(ends.to_host(Mesh([1]))) is SealedValue


def test_a_stream_cannot_rewrite_what_a_codec_made(ends, table):
    table.register(Mesh, lambda mesh: mesh.points, Mesh)
    planted = {**rows.ROWS, Mesh: lambda mesh: (sealed.CODED, ("Mesh", "Mesh", mesh.points), {"points": "planted"})}
    payload, buffers = Encoder(planted, Codec(GuestSide(Resident(), None))._learn).encode([Mesh([1])])
    with pytest.raises(errors.DecodeRefused):
        ends.host.decode(payload, buffers)

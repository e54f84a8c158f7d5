"""numpy arrays and PIL images arrive with equal bytes, type, shape and order, or are refused by name."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from PIL import Image

from comfy_env.errors import DecodeRefused, EncodeRefused
from comfy_env.worker.wire import blocks, headroom, windows
from comfy_env.worker.wire.faults import EncodeFault, NoRoom
from tests.wire.sides import Ends


@pytest.fixture
def ends():
    return Ends()


def _field_types() -> np.ndarray:
    array = np.zeros(3, dtype=np.dtype([("a", "<i2"), ("b", ">f8", (2, 2)), ("c", [("d", "S3")])], align=True))
    array["b"] = 2.5
    array["c"]["d"] = b"xyz"
    return array


ARRAYS = {
    **{f"dtype {code}": np.arange(6).astype(code).reshape(2, 3) for code in "?bBhHiIlLqQefdFD"},
    "big endian": np.arange(5, dtype=">i4"),
    "0-d": np.array(5.5),
    "empty": np.zeros((0, 3)),
    "empty in the middle": np.zeros((2, 0, 3), "i1"),
    "negative stride": np.arange(10)[::-2],
    "fortran order": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "moved axes": np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
    "a view with gaps": np.arange(100).reshape(10, 10)[1:7:2, 3:5],
    "broadcast": np.broadcast_to(np.arange(3), (5, 4, 3)),
    "text": np.array(["ab", "cde", ""]),
    "bytes": np.array([b"ab", b""]),
    "empty text": np.array([""], dtype="U0"),
    "dates": np.array(["2020-01-01T00", "NaT"], dtype="M8[h]"),
    "spans": np.array([1, 2], dtype="m8[3s]"),
    "void": np.array([b"abc"], dtype="V5"),
    "structured": _field_types(),
    "large": np.arange(100_000, dtype="f4").reshape(100, 1000),
    "read-only": np.frombuffer(b"12345678", "i4"),
}


@pytest.mark.row("X6")
@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_arrives_equal_in_bytes_type_shape_and_order(ends, name):
    array = ARRAYS[name]
    back = ends.there_and_back({"a": array})["a"]
    assert type(back) is np.ndarray
    assert back.dtype == array.dtype
    assert back.dtype.str == array.dtype.str
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()
    if array.flags.c_contiguous or array.flags.f_contiguous:
        assert back.strides == array.strides or not array.size


def test_what_could_be_written_to_can_be_written_to(ends):
    for size in (3, 300, 100_000):
        back = ends.to_host(np.zeros(size))
        back[:] = 1
        assert not ends.to_host(np.frombuffer(bytes(8 * size))).flags.writeable


def _kept_from_writing(array: np.ndarray) -> np.ndarray:
    array = array.view()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("make", [
    lambda: np.zeros(4), lambda: np.zeros((0, 2)), lambda: np.zeros((40, 40), order="F"), lambda: np.arange(100)[::-3],
    lambda: np.array(5.5), lambda: np.zeros(100_000), lambda: np.array([None, []], object), lambda: as_strided(np.zeros(3), (5, 3), (0, 8)),
    lambda: as_strided(np.array([1, None], object), (5, 2), (0, 8)), lambda: as_strided(np.zeros(9)[::2], (2, 4), (16, 16)),
], ids=["plain", "empty", "fortran", "negative with gaps", "0-d", "large", "objects", "spread", "spread objects", "window"])
def test_what_could_not_be_written_to_cannot_be_written_to_either(ends, make):
    for array in (make(), _kept_from_writing(make())):
        for back in (ends.there_and_back(array), ends.to_worker([array])[0]):
            assert back.flags.writeable is array.flags.writeable and np.array_equal(back, array)


def test_an_array_of_objects_arrives_element_by_element(ends):
    array = np.empty((2, 2), object)
    array[:] = [[1, [2]], [None, "x"]]
    array[0, 1].append(array)
    back = ends.there_and_back(array)
    assert back.shape == (2, 2)
    assert back[0, 1] == [2, back] or back[0, 1][1] is back
    assert (back[0, 0], back[1, 0], back[1, 1]) == (1, None, "x")


WINDOWS = {
    "sliding": lambda: sliding_window_view(np.arange(1000.0), 100),
    "sliding in two axes": lambda: sliding_window_view(np.arange(400, dtype="u1").reshape(20, 20), (5, 7)),
    "sliding over a part": lambda: sliding_window_view(np.arange(400).reshape(20, 20)[2:12, 3:18:2], (4, 4)),
    "hopping": lambda: sliding_window_view(np.arange(100), 10)[::3],
    "backwards": lambda: sliding_window_view(np.arange(100), 10)[::-1, ::-2],
    "of fields": lambda: sliding_window_view(np.ones(30, [("a", "i1"), ("b", "<f8")])["b"], 9),
    "of records": lambda: sliding_window_view(np.ones(30, [("a", "i1"), ("b", "<f8")]), 9),
    "of halves": lambda: as_strided(np.arange(20, dtype="<i4"), (30, 2), (2, 4)),
    "spread and sliding": lambda: np.broadcast_to(sliding_window_view(np.arange(30), 5), (3, 26, 5)),
    "of objects": lambda: sliding_window_view(np.array([None, [], {1: 2}, "x"], object), 3),
    "spread objects": lambda: np.broadcast_to(np.array(["a", ("b",)], object), (50, 2)),
}
MEMORY = {"sliding": 8000, "sliding in two axes": 400, "hopping": 800, "backwards": 800, "of halves": 280, "spread and sliding": 240}


@pytest.mark.row("X6")
@pytest.mark.parametrize("name", WINDOWS)
def test_a_view_that_shows_its_memory_often_costs_it_once_and_arrives_equal(ends, name):
    array = WINDOWS[name]()
    for value in (array, ends.there_and_back(array)):
        payload, buffers = ends.host.encode(value)
        assert len(payload) + sum(b.nbytes for b in buffers) < 700 + min(MEMORY.get(name, 1 << 30), array.nbytes)
        back = ends.guest.decode(payload, buffers)
        assert (back.dtype, back.shape) == (array.dtype, array.shape) and np.array_equal(back, array)


def test_a_view_that_shows_more_than_there_is_memory_in_the_world_crosses(ends):
    for array in (sliding_window_view(np.zeros(40_000_000, "u1"), 20_000_000), np.broadcast_to(np.array([None], object), (1 << 40, 1))):
        back = ends.to_worker({"a": array})["a"]
        assert back.shape == array.shape and back[7, -1] == array[7, -1]


@pytest.mark.parametrize("strides", [(500, 1), (-500, 1), (1 << 62, 1 << 62)])
def test_a_window_that_looks_beside_its_memory_is_refused(ends, monkeypatch, strides):
    array = sliding_window_view(np.arange(20), 3)
    found = windows.grid_of(array.shape, array.strides)
    monkeypatch.setattr(windows, "grid_of", lambda shape, steps: found._replace(strides=strides))
    payload, buffers = ends.guest.encode(array)
    with pytest.raises(DecodeRefused):
        ends.host.decode(payload, buffers)


def test_what_is_written_through_a_window_shows_wherever_it_looks(ends):
    back = ends.to_worker(as_strided(np.zeros(4), (3, 2), (8, 8)))
    back[0, 1] = 5
    assert back[1, 0] == 5


@pytest.mark.parametrize("make", [lambda: np.zeros(20_000_000, "u1")[::2], lambda: sliding_window_view(np.zeros(40_000_000, "u1")[::2], 9)],
                         ids=["gaps", "window with gaps"])
def test_a_copy_that_there_is_no_room_for_is_refused_by_its_place_before_it_is_made(ends, monkeypatch, make):
    def full(self, size):
        raise NoRoom(f"{size} bytes of memory are wanted and 0 are left")

    array = make()
    monkeypatch.setattr(headroom.Headroom, "take", full)
    with pytest.raises(EncodeRefused, match=r"^value\['deep'\]\[0\] must be copied to be sent, which needs .* bytes of memory are wanted"):
        ends.to_worker({"deep": [array]})


    with pytest.raises(EncodeFault):
        headroom.copied(array, array.nbytes, lambda: pytest.fail("it is copied although there is no room"))


def test_a_copy_that_fails_is_refused_by_name():
    def fails():
        raise MemoryError("Unable to allocate 8 bytes")

    with pytest.raises(EncodeFault, match="must be copied to be sent, which failed .Unable to allocate"):
        headroom.copied(np.zeros(1), 8, fails)


def test_a_refusal_inside_an_array_of_objects_names_its_place(ends):
    array = np.array([1, open], dtype=object)
    array[1] = memoryview(b"x")
    with pytest.raises(EncodeRefused, match=r"^value\['a'\]\.flat\[1\] is of type builtins.memoryview"):
        ends.to_worker({"a": array})


SCALARS = [np.float32(1.5), np.float64("nan"), np.int8(-3), np.bool_(True), np.complex64(1j), np.str_("é"), np.bytes_(b"x"),
           np.datetime64("2020-01-01"), np.timedelta64(3, "D"), _field_types()[0], np.float16(0.5), np.str_("")]


@pytest.mark.row("X6")
@pytest.mark.parametrize("scalar", SCALARS, ids=lambda s: s.dtype.name + repr(s)[:12])
def test_a_numpy_scalar_keeps_its_type(ends, scalar):
    back = ends.there_and_back([scalar])[0]
    assert type(back) is type(scalar)
    assert back.dtype == scalar.dtype
    assert back.tobytes() == scalar.tobytes()


@pytest.mark.parametrize("dtype", [np.dtype("f4"), np.dtype(">i2"), np.dtype("O"), _field_types().dtype, np.dtype(("i4", (2,)))], ids=str)
def test_a_dtype_arrives_as_the_same(ends, dtype):
    assert ends.there_and_back(dtype) == dtype


def _same_type(one: np.dtype, other: np.dtype) -> bool:
    if one.subdtype is not None:
        return one.shape == other.shape and _same_type(one.base, other.base)
    return (one == other and one.type is other.type and dict(one.metadata or {}) == dict(other.metadata or {})
            and one.isalignedstruct == other.isalignedstruct and one.itemsize == other.itemsize and one.names == other.names
            and all(one.fields[n][1:] == other.fields[n][1:] and _same_type(one.fields[n][0], other.fields[n][0]) for n in one.names or ()))


_TITLED = np.dtype({"names": ["a", "b"], "formats": ["<i4", "<f8"], "offsets": [0, 8], "titles": ["A long title", None], "itemsize": 24})
_UNITS = np.dtype("<f4", metadata={"unit": "mm", "scale": (1, 2.5)})
_ALIGNED = np.dtype([(("T", "a"), "i1"), ("b", "<f8")], align=True, metadata={1: 2})
RICH = {
    "titles": _TITLED,
    "a title that is no text": np.dtype({"names": ["a"], "formats": ["<i4"], "titles": [("x", 1)]}),
    "metadata": _UNITS,
    "metadata of fields": np.dtype([("a", _UNITS), ("b", _UNITS, (2,))], metadata={"of": "all"}),
    "metadata of a part": np.dtype((_UNITS, (3,))),
    "records": np.dtype((np.record, [("a", "<i4"), ("b", "S3")])),
    "aligned records with titles and metadata": np.dtype((np.record, _ALIGNED)),
    "objects with metadata": np.dtype("O", metadata={"vlen": "str"}),
}


@pytest.mark.row("X6")
@pytest.mark.parametrize("name", RICH)
def test_titles_metadata_and_records_are_kept(ends, name):
    dtype = RICH[name]
    assert _same_type(ends.there_and_back(dtype), dtype)
    array = np.zeros(3, dtype)
    for one in (array, array[:0], np.broadcast_to(array, (2, *array.shape))):
        assert _same_type(ends.there_and_back(one).dtype, array.dtype)
    if array.dtype.names:
        back = ends.there_and_back(array[0])
        assert type(back) is type(array[0]) and _same_type(back.dtype, array.dtype)


class _Void(np.void):
    pass


_ODD_ONE = memoryview(b"x")


_ODD_METADATA = np.dtype("<f4", metadata={"f": _ODD_ONE})
_ODD_TITLE = np.dtype({"names": ["x"], "formats": ["i1"], "titles": [_ODD_ONE]})
ODD = {
    "metadata that cannot cross": (np.zeros(2, _ODD_METADATA), ".dtype.metadata['f'] is of type"),
    "metadata of a field": (np.zeros(2, [("x", _ODD_METADATA)]), ".dtype['x'].metadata['f'] is of type"),
    "a title that cannot cross": (np.zeros(1, _ODD_TITLE), ".dtype['x'].title is of type"),
    "a class of records": (np.zeros(2, np.dtype((_Void, [("a", "i1")]))), " holds numpy type"),
    "numbers with fields": (np.zeros(2, np.dtype((np.int32, {"lo": (np.int16, 0), "hi": (np.int16, 2)}))), " holds numpy type"),
    "a type": (np.dtype(np.longdouble), " holds numpy type"),
}


@pytest.mark.row("X6")
@pytest.mark.parametrize("name", ODD)
def test_a_numpy_type_that_would_not_be_the_same_is_refused_by_its_place(ends, name):
    value, why = ODD[name]
    with pytest.raises(EncodeRefused, match="^" + re.escape(f"value['a']{why}")):
        ends.to_worker({"a": value})


@pytest.mark.row("X6")
@pytest.mark.parametrize("array", [np.zeros(2, np.longdouble), np.zeros(2, [("a", "O")])], ids=["longdouble", "objects in fields"])
def test_a_type_without_a_safe_form_is_refused_by_name(ends, array):
    with pytest.raises(EncodeRefused, match="value holds numpy type|value is a structured array"):
        ends.to_worker(array)


@pytest.mark.row("X6")
@pytest.mark.parametrize("array", [np.ma.masked_array([1], [True]), np.zeros(1).view(np.recarray)], ids=lambda a: type(a).__name__)
def test_a_subclass_is_never_silently_made_an_array(ends, array):
    with pytest.raises(EncodeRefused, match=type(array).__name__):
        ends.to_worker(array)


def test_a_dense_array_is_not_copied_to_be_sent_and_a_view_costs_what_it_shows(ends):
    array = np.zeros((1000, 1000), "u1")
    _, buffers = ends.host.encode([array, array.T, array[:500]])
    memory = np.frombuffer(buffers[0], "u1")
    assert memory.__array_interface__["data"] == array.__array_interface__["data"]
    assert [b.nbytes for b in buffers] == [1_000_000, 1_000_000, 500_000]
    _, buffers = ends.host.encode(np.broadcast_to(np.zeros(20_000, "u1"), (100, 20_000)))
    assert [b.nbytes for b in buffers] == [20_000]
    payload, buffers = ends.host.encode(np.zeros(blocks.IN_FRAME - 1, "u1"))
    assert not buffers
    assert len(payload) < blocks.IN_FRAME + 300


# ---------------------------------------------------------------- pictures

def _pictures() -> dict[str, Image.Image]:
    base = Image.radial_gradient("L").resize((33, 17))
    rgb = Image.merge("RGB", (base, base.rotate(90), base.rotate(180)))
    pictures = {mode: rgb.convert(mode) for mode in ("1", "L", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "I", "F", "LA", "RGBX")}
    pictures["P"] = rgb.convert("P", palette=Image.Palette.ADAPTIVE)
    pictures["P with alpha"] = rgb.convert("RGBA").quantize(16)
    pictures["I;16"] = base.convert("I").point(lambda v: v * 200).convert("I;16")
    pictures["empty"] = Image.new("RGB", (0, 5))
    pictures["large"] = rgb.resize((400, 300))
    return pictures


PICTURES = _pictures()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_arrives_equal(ends, name):
    picture = PICTURES[name]
    picture.info["note"] = ("dpi", 72)
    back = ends.there_and_back(picture)
    assert back == picture
    assert type(back) is Image.Image
    assert (back.mode, back.size, back.info["note"]) == (picture.mode, picture.size, ("dpi", 72))
    if picture.size[0] and picture.mode != "F":
        assert back.convert("RGBA").tobytes() == picture.convert("RGBA").tobytes()


def test_a_picture_opened_from_a_file_arrives_as_its_pixels(ends, tmp_path):
    PICTURES["RGB"].save(tmp_path / "a.png", dpi=(72, 72))
    with Image.open(tmp_path / "a.png") as opened:
        back = ends.there_and_back(opened)
        assert back.tobytes() == opened.tobytes()
        assert back.info["dpi"] == opened.info["dpi"]


def test_a_host_without_numpy_refuses_an_array_by_name(ends, monkeypatch):
    monkeypatch.setattr("comfy_env.transport.codec._LOADERS", dict.fromkeys(("numpy", "torch", "PIL.Image"), lambda: None))
    for value, what in ((np.zeros(3), "numpy"), (PICTURES["RGB"], "PIL"), (np.float32(1), "numpy"), (np.dtype("f4"), "numpy")):
        payload, buffers = ends.guest.encode(value)
        with pytest.raises(DecodeRefused, match=what):
            ends.host.decode(payload, buffers)

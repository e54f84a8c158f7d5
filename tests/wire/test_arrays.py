"""numpy arrays and PIL images arrive with equal bytes, type, shape and order, or are refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from comfy_env.errors import DecodeRefused, EncodeRefused
from comfy_env.worker.wire import blocks
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


def test_an_array_of_objects_arrives_element_by_element(ends):
    array = np.empty((2, 2), object)
    array[:] = [[1, [2]], [None, "x"]]
    array[0, 1].append(array)
    back = ends.there_and_back(array)
    assert back.shape == (2, 2)
    assert back[0, 1] == [2, back] or back[0, 1][1] is back
    assert (back[0, 0], back[1, 0], back[1, 1]) == (1, None, "x")


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

"""torch tensors arrive equal in type, shape, layout and flags, or are refused by name; without torch as arrays."""

from __future__ import annotations

import numpy as np
import pytest

from comfy_env.errors import DecodeRefused, EncodeRefused
from comfy_env.worker.wire import headroom, windows
from comfy_env.worker.wire.faults import NoRoom
from tests.wire.sides import Ends

torch = pytest.importorskip("torch")


@pytest.fixture
def ends():
    return Ends()


NAMES = [
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
    "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
]
DTYPES = [getattr(torch, name) for name in NAMES if hasattr(torch, name)]


def _bytes(tensor) -> bytes:
    return bytes(tensor.detach().contiguous().view(torch.uint8).flatten().tolist()) if tensor.numel() else b""


@pytest.mark.row("X6")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_arrives_bit_by_bit(ends, dtype):
    raw = torch.arange(24 * dtype.itemsize, dtype=torch.int32).to(torch.uint8)
    raw = raw % 2 if dtype == torch.bool else raw
    tensor = raw.view(dtype).reshape(2, 3, 4)
    back = ends.there_and_back([tensor])[0]
    assert (back.dtype, back.shape, back.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
    assert _bytes(back) == _bytes(tensor)


LAYOUTS = {
    "0-d": lambda: torch.tensor(5.5),
    "empty": lambda: torch.zeros(0, 3),
    "view with offset and stride": lambda: torch.arange(1000.0).reshape(10, 100)[2:9:3, 5:50:7],
    "transposed": lambda: torch.arange(12.0).reshape(3, 4).t(),
    "expanded": lambda: torch.arange(3.0).reshape(3, 1).expand(3, 50_000),
    "expanded everywhere": lambda: torch.tensor(2.0).expand(4, 5),
    "channels last": lambda: torch.rand(2, 3, 8, 8).to(memory_format=torch.channels_last),
    "conjugated": lambda: torch.tensor([1 + 2j, 3j]).conj(),
    "negated": lambda: torch.tensor([1 + 2j, 3j]).conj().imag,
    "large": lambda: torch.rand(300, 300),
    "size one axes": lambda: torch.rand(1, 5, 1)[:, :, :],
    "overlapping": lambda: torch.arange(6.0).as_strided((3, 3), (1, 1)),
}


@pytest.mark.row("X6")
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_arrives_equal(ends, name):
    tensor = LAYOUTS[name]()
    back = ends.there_and_back(tensor)
    assert torch.equal(back, tensor)
    assert back.shape == tensor.shape


@pytest.mark.parametrize("name", ["transposed", "expanded", "channels last", "0-d", "large"])
def test_a_dense_layout_keeps_its_strides(ends, name):
    tensor = LAYOUTS[name]()
    assert ends.there_and_back(tensor).stride() == tensor.stride()


WINDOWS = {   # and how many elements of memory they show
    "unfolded": (lambda: torch.arange(1000.0).unfold(0, 100, 1), 1000),
    "unfolded in two axes": (lambda: torch.arange(400.0).reshape(20, 20).unfold(0, 5, 1).unfold(1, 7, 2), 380),
    "over a part": (lambda: torch.arange(400.0).reshape(20, 20)[2:12, 3:18:2].unfold(0, 4, 1).unfold(1, 4, 1), 80),
    "expanded": (lambda: torch.arange(30.0).unfold(0, 5, 1).expand(7, 26, 5), 30),
    "conjugated": (lambda: torch.arange(30.0).add(1j).unfold(0, 9, 1).conj(), 30),
    "expanded and conjugated": (lambda: torch.tensor([1 + 2j]).conj().expand(50), 1),
    "negated": (lambda: torch.tensor([1 + 2j, 3j]).conj().imag.expand(30, 2), 2),
    "with gaps": (lambda: torch.arange(100).as_strided((30, 4), (2, 2)), 33),
    "one of each axis": (lambda: torch.arange(100).as_strided((1, 30, 1, 4), (7, 1, 3, 1)), 33),
}


@pytest.mark.row("X6")
@pytest.mark.parametrize("name", WINDOWS)
def test_a_tensor_that_shows_its_memory_often_costs_it_once_and_arrives_equal(ends, name):
    make, elements = WINDOWS[name]
    tensor = make()
    for value in (tensor, ends.there_and_back(tensor)):
        payload, buffers = ends.host.encode(value)
        assert len(payload) + sum(b.nbytes for b in buffers) < 250 + elements * tensor.element_size()
        back = ends.guest.decode(payload, buffers)
        assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape) and torch.equal(back, tensor)


def test_a_window_over_more_than_there_is_memory_in_the_world_crosses(ends):
    back = ends.to_worker(torch.zeros(4_000_000, dtype=torch.uint8).unfold(0, 2_000_000, 1))
    assert back.shape == (2_000_001, 2_000_000) and back[5, 7] == 0


def test_a_tensor_that_must_be_copied_and_has_no_room_for_it_is_refused_by_its_place(ends, monkeypatch):
    def full(self, size):
        raise NoRoom(f"{size} bytes of memory are wanted and 0 are left")

    monkeypatch.setattr(headroom.Headroom, "take", full)
    for tensor in (torch.zeros(10_000_000)[::2], torch.zeros(10_000_000, dtype=torch.complex64).conj()):
        with pytest.raises(EncodeRefused, match=r"^value\[1\] must be copied to be sent, which needs .* bytes of memory are wanted"):
            ends.to_worker([0, tensor])


def test_parameters_and_gradients_keep_their_flags(ends):
    frozen, parameter = torch.nn.Parameter(torch.ones(2), requires_grad=False), torch.nn.Parameter(torch.ones(2))
    leaf, plain = torch.ones(2, requires_grad=True), torch.ones(2)
    back = ends.there_and_back([frozen, parameter, leaf, plain, leaf * 2])
    assert [type(t) for t in back] == [torch.nn.Parameter, torch.nn.Parameter, torch.Tensor, torch.Tensor, torch.Tensor]
    assert [t.requires_grad for t in back] == [False, True, True, False, True]


def test_a_tensor_is_sent_from_its_own_memory_and_a_view_costs_what_it_shows(ends):
    tensor = torch.rand(1000, 1000)
    _, buffers = ends.host.encode([tensor, tensor[:100]])
    assert np.frombuffer(buffers[0], "u1").__array_interface__["data"][0] == tensor.data_ptr()
    assert [b.nbytes for b in buffers] == [4_000_000, 400_000]
    _, buffers = ends.host.encode(torch.rand(10_000).expand(100, 10_000))
    assert [b.nbytes for b in buffers] == [40_000]


def test_a_received_tensor_can_be_written_to_and_outlives_the_message(ends):
    for size in (2, 100_000):
        back = ends.to_host(torch.zeros(size))
        back += 1
        assert back.sum() == size


OTHERS = [torch.float16, torch.device("cpu"), torch.device("cuda:1"), torch.Size([1, 2]), torch.strided, torch.channels_last]


@pytest.mark.parametrize("value", OTHERS, ids=str)
def test_what_comes_with_tensors_arrives_as_the_same(ends, value):
    back = ends.there_and_back([value])[0]
    assert back == value
    assert type(back) is type(value)


def test_a_generator_goes_on_where_it_was(ends):
    generator = torch.Generator().manual_seed(5)
    torch.rand(3, generator=generator)
    back = ends.there_and_back(generator)
    assert torch.equal(torch.rand(4, generator=back), torch.rand(4, generator=generator))


ODD = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "meta": lambda: torch.zeros(3, device="meta"),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
}


@pytest.mark.row("X6")
@pytest.mark.parametrize("name", ODD)
@pytest.mark.filterwarnings("ignore")
def test_a_tensor_that_cannot_cross_is_refused_by_what_it_is(ends, name):
    with pytest.raises(EncodeRefused, match=rf"value\[1\] is a {name} tensor"):
        ends.to_worker([0, ODD[name]()])


def resized(size, to):
    tensor = torch.ones(size)
    tensor.untyped_storage().resize_(to)
    return tensor


WITHOUT_MEMORY = {
    "resized away": lambda: resized(1000, 0),
    "resized to less than it spans": lambda: resized(10_000_000, 4096),
    "zeros that are none": lambda: torch._efficientzerotensor((10,)),
    "functional": lambda: torch._to_functional_tensor(torch.ones(3)),
}


@pytest.mark.parametrize("name", WITHOUT_MEMORY)
def test_a_tensor_without_the_memory_it_spans_is_refused_and_ends_nobody(ends, name):
    with pytest.raises(EncodeRefused, match=r"value\[1\] is a tensor whose elements lie in no memory of its own"):
        ends.to_worker([0, WITHOUT_MEMORY[name]()])


@pytest.mark.parametrize("strides", [(500, 1), (-1, 1), (1, 1, 1), (0, 1)])
def test_a_window_that_does_not_fit_its_bytes_is_refused(ends, monkeypatch, strides):
    found = windows.grid_of((18, 3), (1, 1))
    monkeypatch.setattr(windows, "grid_of", lambda shape, steps: found._replace(strides=strides))
    payload, buffers = ends.guest.encode(torch.arange(20).unfold(0, 3, 1))
    with pytest.raises(DecodeRefused):
        ends.host.decode(payload, buffers)


# ---------------------------------------------------------------- an end without torch

@pytest.fixture
def no_torch(ends, monkeypatch):
    monkeypatch.setattr("comfy_env.worker.tensors._LOADERS", {"numpy": lambda: np, "torch": lambda: None})
    return ends


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "int64", "uint8", "bool", "complex64", "int8"])
def test_without_torch_a_tensor_arrives_as_an_array_over_the_same_bytes(no_torch, name):
    tensor = torch.ones(3, 4).to(getattr(torch, name)).t()
    array = no_torch.to_worker(tensor)
    assert type(array) is np.ndarray
    assert array.dtype == np.dtype(name)
    assert np.array_equal(array, tensor.numpy())
    assert array.strides == tensor.numpy().strides


@pytest.mark.row("X6")
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "complex32"])
def test_without_torch_a_type_that_numpy_lacks_is_refused_by_name(no_torch, name):
    with pytest.raises(Exception, match=rf'torch\.{name} .*torch = "own"'):
        no_torch.to_worker(torch.zeros(3).to(getattr(torch, name)))


def test_without_torch_its_names_are_refused_and_its_sizes_are_tuples(no_torch):
    with pytest.raises(Exception, match="torch.float16 came to a Python without torch"):
        no_torch.to_worker(torch.float16)
    assert no_torch.to_worker(torch.Size([1, 2])) == (1, 2)


def test_a_device_that_is_not_here_is_refused_by_name(ends):
    payload, buffers = ends.guest.encode(torch.zeros(3))
    with pytest.raises(DecodeRefused, match="xpu:7|cannot be read"):
        ends.host.decode(payload.replace(b"\x8c\x03cpu", b"\x8c\x05xpu:7"), buffers)


@pytest.mark.parametrize(("old", "new"), [(b"K\x03\x85", b"K\x09\x85"), (b"K\x01\x85", b"K\x09\x85"), (b"float32", b"float99")])
def test_a_tensor_that_does_not_fit_its_bytes_is_refused(ends, old, new):
    payload, buffers = ends.guest.encode(torch.zeros(3))
    with pytest.raises(DecodeRefused):
        ends.host.decode(payload.replace(old, new), buffers)

"""Any array or tensor, in any layout, anywhere in a value: it crosses equal bit by bit, or is refused by name."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comfy_env.errors import EncodeRefused
from tests.arena.kit import arena_worker, pack_module

torch = pytest.importorskip("torch")

SETTINGS = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

TORCH_TYPES = [getattr(torch, name) for name in (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
    "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
) if hasattr(torch, name)]
NUMPY_TYPES = ["?", "u1", "i1", "<u2", ">i2", "<i4", ">u8", "f2", "<f4", ">f8", "c8", "c16", "S3", "U2", "V5", "M8[s]", "m8[ns]",
               [("a", "u1"), ("b", "<f4")], [("x", "<i2", (2,))],
               [(("a title", "a"), "u1"), ("b", "<f4")], np.dtype("<i4", metadata={"unit": "mm"})]
SHAPES = st.one_of(
    st.just(()), st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple),
    st.sampled_from([(70_001,), (3, 41, 577), (2, 3, 64, 130)]),
)
Pair = pack_module().Pair


@pytest.fixture(scope="module")
def worker():
    with arena_worker() as started:
        yield started


def _raw(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2 if seed % 2 else 256, size, np.uint8)


# ---------------------------------------------------------------- torch

LAYOUTS = {
    "plain": lambda t: t,
    "transposed": lambda t: t.transpose(0, -1) if t.dim() > 1 else t,
    "every second": lambda t: t[::2] if t.dim() else t,
    "offset": lambda t: t[1:] if t.dim() and t.shape[0] else t,
    "narrow inside": lambda t: t[..., 1:-1] if t.dim() and t.shape[-1] > 2 else t,
    "expanded": lambda t: t.unsqueeze(0).expand(3, *t.shape),
    "expanded inside": lambda t: t[:1].expand(7, *t.shape[1:]) if t.dim() and t.shape[0] else t,
    "channels last": lambda t: t.to(memory_format=torch.channels_last) if t.dim() == 4 and t.dtype.itemsize > 1 else t,
    "conjugate": lambda t: t.conj() if t.is_complex() and t.dtype != torch.complex32 else t,
    "negative": lambda t: t.conj().imag if t.is_complex() and t.dtype != torch.complex32 else t,
    "overlapping": lambda t: t.unfold(0, 2, 1) if t.dim() == 1 and t.shape[0] > 2 else t,
    "gradient": lambda t: t.clone().requires_grad_() if t.is_floating_point() and t.dtype.itemsize > 1 else t,
}


def _tensor(dtype, shape, layout, seed):
    count = int(np.prod(shape))
    raw = _raw(count * dtype.itemsize, seed | 1 if dtype == torch.bool else seed)
    return LAYOUTS[layout](torch.from_numpy(raw).view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype))


tensors = st.builds(_tensor, st.sampled_from(TORCH_TYPES), SHAPES, st.sampled_from(sorted(LAYOUTS)), st.integers(0, 1000))


def _tensor_bytes(tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.flatten().view(torch.uint8).numpy().tobytes() if plain.numel() else b""


# ---------------------------------------------------------------- numpy

ARRAY_LAYOUTS = {
    "plain": lambda a: a,
    "transposed": lambda a: a.T,
    "backwards": lambda a: a[::-1] if a.ndim else a,
    "every second": lambda a: a[::2] if a.ndim else a,
    "broadcast": lambda a: np.broadcast_to(a, (4, *a.shape)),
    "Fortran": np.asfortranarray,
    "read only": lambda a: _frozen(a),
    "inside": lambda a: a[1:-1, ...] if a.ndim else a,
    "windows": lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, axis=0) if a.ndim and len(a) > 2 else a,
}


def _frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def _array(dtype, shape, layout, seed):
    kind = np.dtype(dtype)
    raw = _raw(int(np.prod(shape)) * kind.itemsize, seed | 1 if kind.kind in "?U" else seed)
    raw = raw * (65 if kind.kind == "S" else 1)
    if kind.kind == "U":
        raw[:] = 0
    return ARRAY_LAYOUTS[layout](np.frombuffer(raw.tobytes(), kind).reshape(shape).copy())


arrays = st.builds(_array, st.sampled_from(NUMPY_TYPES), SHAPES, st.sampled_from(sorted(ARRAY_LAYOUTS)), st.integers(0, 1000))


# ---------------------------------------------------------------- the claims

def nested(leaves):
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(st.text(max_size=3), inner, max_size=3),
            st.builds(Pair, inner, inner), st.builds(lambda a: collections.deque([a], maxlen=4), inner),
        ),
        max_leaves=4,
    )


def assert_same(got, sent) -> None:
    assert type(got) is type(sent)
    if isinstance(sent, torch.Tensor):
        assert (got.dtype, got.shape, got.requires_grad, got.device) == (sent.dtype, sent.shape, sent.requires_grad, sent.device)
        assert _tensor_bytes(got) == _tensor_bytes(sent)
    elif isinstance(sent, np.ndarray):
        assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
        assert got.tobytes() == sent.tobytes()
        assert got.flags.writeable == sent.flags.writeable
        assert (got.dtype.metadata, got.dtype.fields) == (sent.dtype.metadata, sent.dtype.fields)
    elif isinstance(sent, dict):
        assert list(got) == list(sent)
        for key, value in sent.items():
            assert_same(got[key], value)
    else:
        assert len(got) == len(sent)
        for one, other in zip(got, sent, strict=True):
            assert_same(one, other)


def needed(value) -> int:
    """How many bytes of memory a value shows, what it shows several times counted once."""
    if isinstance(value, torch.Tensor):
        return _places(value.shape, value.stride()) * value.dtype.itemsize
    if isinstance(value, np.ndarray):
        return _places(value.shape, value.strides) * value.itemsize
    return sum(needed(part) for part in (value.values() if isinstance(value, dict) else value))


def _places(shape, steps) -> int:
    places = np.zeros((), np.int64)
    for size, step in zip(shape, steps, strict=True):
        places = np.unique(np.add.outer(places, np.arange(size) * step))
    return places.size


@SETTINGS
@given(value=nested(st.one_of(tensors, arrays)))
def test_any_value_with_arrays_and_tensors_crosses_equal_both_ways_and_costs_what_it_shows(worker, value):
    payload, buffers = worker.session.codec.encode(value)
    assert len(payload) + sum(buffer.nbytes for buffer in buffers) <= needed(value) + 4000
    assert_same(worker.value("arena_pack:echo", value), value)


@SETTINGS
@given(tensor=tensors)
def test_a_tensor_that_was_returned_crosses_again_without_a_byte_copied_if_it_is_dense(worker, tensor):
    back = worker.value("arena_pack:echo", tensor)
    before = worker.session.traffic
    assert_same(worker.value("arena_pack:echo", back), tensor)
    after = worker.session.traffic
    large = needed(tensor) >= 65_536
    assert after["copied"] == before["copied"] or not large or not _is_dense(back)


def _is_dense(tensor) -> bool:
    expected = 1
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and step and step != expected:
            return False
        expected *= size if step else 1
    return not tensor.is_conj() and not tensor.is_neg()


ODD = {
    "sparse": lambda: torch.eye(300).to_sparse(),
    "sparse rows": lambda: torch.eye(300).to_sparse_csr(),
    "meta": lambda: torch.zeros(70_000, device="meta"),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(70_000), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "subclass": lambda: torch.ones(3).as_subclass(type("Mine", (torch.Tensor,), {})),
    "masked": lambda: np.ma.masked_array([1], [True]),
    "long double": lambda: np.zeros(3, np.longdouble),
    "objects in fields": lambda: np.zeros(2, [("a", "O")]),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.shares("folder") if n == "jagged" else ()) for n in ODD])
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_cross_is_refused_by_its_path_and_nothing_is_lent(worker, name):
    value = {"good": np.ones(70_000), "odd": [1, ODD[name]()]}
    before = worker.session.traffic["lent"]
    with pytest.raises(EncodeRefused, match=r"args\[0\]\['odd'\]\[1\] "):
        worker.value("arena_pack:echo", value)
    assert worker.session.traffic["lent"] == before
    assert worker.value("arena_pack:echo", 1) == 1


# ---------------------------------------------------------------- an end without torch

@pytest.fixture(scope="module")
def without_torch():
    with arena_worker() as started:
        started.value("arena_pack:without", "torch")
        yield started


@pytest.mark.parametrize("name", ["float32", "float16", "int64", "bool", "complex64"])
def test_a_tensor_becomes_an_array_over_the_same_block_where_there_is_no_torch(without_torch, name):
    tensor = torch.ones(70_000).to(getattr(torch, name))
    assert without_torch.value("arena_pack:name_of", tensor) == "numpy.ndarray"
    back = without_torch.value("arena_pack:echo", tensor)
    assert type(back) is np.ndarray
    assert back.tobytes() == tensor.numpy().tobytes()
    before = without_torch.session.traffic["copied"]
    assert without_torch.value("arena_pack:echo", back).dtype == back.dtype
    assert without_torch.session.traffic["copied"] == before


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn"])
def test_what_numpy_lacks_is_refused_by_name_and_gives_its_block_back(without_torch, name):
    answer = without_torch.call("arena_pack:echo", torch.zeros(100_000).to(getattr(torch, name)))
    assert f"torch.{name}" in answer.text and 'torch = "own"' in answer.text
    without_torch.value("arena_pack:nothing")
    assert without_torch.session.traffic["lent"] == 0


def test_a_worker_imports_neither_numpy_nor_torch_before_a_value_needs_it():
    with arena_worker() as worker:
        assert not worker.value("arena_pack:has", "numpy")
        worker.value("arena_pack:nothing", np.ones(70_000))
        assert worker.value("arena_pack:has", "numpy")
        assert not worker.value("arena_pack:has", "torch")

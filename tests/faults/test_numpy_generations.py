"""X6: arrays between numpy 1 and numpy 2 arrive with equal bytes, or are refused by name; built from the package index."""

from __future__ import annotations

import numpy
import pytest

from comfy_env import EnvPlan, WorkerPool
from comfy_env.errors import EncodeRefused
from comfy_env.settings import Settings
from tests.faults.ward import CODE, PACK

KINDS = (
    "?", "i1", "u1", "<i2", ">i2", "<u4", "<i8", ">u8", "<f2", "<f4", ">f4", "<f8", "<c8", "<c16", "S5", "<U3", ">U3",
    "<M8[ns]", "<m8[s]", "V4", "i4,f8", [("a", "<i2"), ("b", "<f4", (2,))],
)


def arrays() -> dict[str, numpy.ndarray]:
    """Return an array of every kind, and every layout of one."""
    dice = numpy.random.default_rng(6)
    base = numpy.arange(60, dtype="<f4").reshape(3, 4, 5)
    return {
        **{str(kind): filled(numpy.dtype(kind), dice) for kind in KINDS},
        "0-d": base[0, 0, 0:1].reshape(()), "empty": base[:0], "Fortran": numpy.asfortranarray(base), "negative": base[::-1, :, ::-2],
        "broadcast": numpy.broadcast_to(base[0], (4, 4, 5)), "large": numpy.arange(300_000, dtype="<i4"),
    }


def filled(dtype: numpy.dtype, dice: numpy.random.Generator) -> numpy.ndarray:
    """Return 24 items of a type with any bits that its items may have."""
    if dtype.kind == "U":
        return numpy.array([chr(65 + number) * 2 for number in range(24)], dtype)
    raw = dice.integers(0, 2 if dtype.kind == "b" else 256, 24 * dtype.itemsize, dtype="u1")
    return raw.view(dtype)


@pytest.mark.real
@pytest.mark.row("X6")
def test_arrays_between_numpy_1_and_numpy_2_are_equal_byte_for_byte(tmp_path, fired, interpreters):
    minor = next((minor for minor in ("3.12", "3.11", "3.10", "3.9") if minor in interpreters), None)
    if minor is None or numpy.__version__.startswith("1."):
        pytest.skip("needs a host with numpy 2 and a Python of at most 3.12")
    plan = EnvPlan(key="numpy-1", root=CODE, import_roots=(PACK,), python=minor, dependencies=("numpy==1.26.4",))
    settings = Settings(runtime_folder=tmp_path / "run", log_folder=tmp_path / "logs", envs_folder=tmp_path / "envs")
    with WorkerPool(settings) as pool:
        pool.build(plan)
        assert pool.call(plan, "jobs:version_of", "numpy")[0] == "1.26.4" != numpy.__version__
        for name, array in arrays().items():
            back = pool.call(plan, "fault_pack:echo", array)
            assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes()), name
            assert pool.call(plan, "fault_pack:bytes_of", array) == array.tobytes(), name
            fired()
        with pytest.raises(EncodeRefused, match="StringDType"):
            pool.call(plan, "fault_pack:echo", numpy.array(["a"], dtype=numpy.dtypes.StringDType()))
        fired()
        pool.remove(plan)

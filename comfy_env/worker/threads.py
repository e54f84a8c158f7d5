"""How many threads the libraries of a forked worker compute with: as many as if it had imported them itself.

Its zygote imported them for one thread, so that none was alive when it forked. What a thread of a pack's own asks of an
OpenMP library without torch stays at one: there is no way to change that for threads to come.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Variables under which imports start no threads."""

_LIBRARIES = (
    (re.compile(r"lib[^/]*openblas[^/]*$"), ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"), (
        "scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads64_", "openblas_set_num_threads")),
    (re.compile(r"libmkl_rt[^/]*$"), ("MKL_NUM_THREADS", "OMP_NUM_THREADS"), ("MKL_Set_Num_Threads",)),
    (re.compile(r"lib(gomp|omp|iomp5)\b[^/]*$"), ("OMP_NUM_THREADS",), ("omp_set_num_threads",)),
)
"""Names of libraries, the variables that limit them, and the function of theirs that sets the number."""


class Setters:
    """The functions by which what is loaded now is told a number; looked for once, before any fork."""

    def __init__(self) -> None:
        self._setters = [found for path in loaded() for found in _setters(path)]
        torch = sys.modules.get("torch")
        if torch is not None:
            self._setters.append((torch.set_num_threads, ("OMP_NUM_THREADS", "MKL_NUM_THREADS"), True))

    def restore(self, variables: Mapping[str, str]) -> None:
        """Let every library use what a worker with these variables would have given it."""
        processors, cores = len(os.sched_getaffinity(0)), _cores()
        for tell, names, by_core in self._setters:
            tell(_asked(variables, names) or (cores if by_core else processors))


def loaded() -> list[str]:
    """Return the files of the shared libraries this process has loaded."""
    lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    return sorted({line[line.index("/"):] for line in lines if ".so" in line and "/" in line})


def _setters(path: str) -> Iterator[tuple[Callable[[int], Any], tuple[str, ...], bool]]:
    for pattern, names, functions in _LIBRARIES:
        if pattern.search(path):
            library = ctypes.CDLL(path)
            found = [getattr(library, name) for name in functions if hasattr(library, name)]
            yield from ((function, names, "mkl" in path) for function in found[:1])


def _asked(variables: Mapping[str, str], names: tuple[str, ...]) -> int:
    """Return the number the first of these variables asks for, 0 if none does."""
    for name in names:
        first = variables.get(name, "").split(",")[0].strip()
        if first.isdigit() and int(first) > 0:
            return int(first)
    return 0


def _cores() -> int:
    """Return how many processors this process may use, counting those that share a core once."""
    found = set()
    for number in os.sched_getaffinity(0):
        place = Path(f"/sys/devices/system/cpu/cpu{number}/topology")
        try:
            found.add(((place / "physical_package_id").read_text(), (place / "core_id").read_text()))
        except OSError:
            found.add((str(number), ""))
    return len(found) or 1

"""A view that shows memory more than once is taken apart into the fewest places that hold it, and laid over them again."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from comfy_env.worker.wire.windows import Grid, grid_of, reach

AXES = st.lists(st.tuples(st.integers(1, 5), st.sampled_from([0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 20, 30, 60])), min_size=1, max_size=4)


def places(shape, strides) -> set[int]:
    return {sum(i * step for i, step in zip(at, strides, strict=True)) for at in itertools.product(*map(range, shape))}


@settings(max_examples=400, deadline=None, derandomize=True)
@given(axes=AXES)
def test_a_grid_holds_all_that_its_view_shows_and_less_than_it_shows_and_nothing_beyond_it(axes):
    shape, strides = [size for size, _ in axes], [step for _, step in axes]
    seen = places(shape, strides)
    grid = grid_of(shape, strides)
    if grid is None:
        return
    held = places(grid.sizes, grid.steps)
    sent = np.prod(grid.sizes, dtype=int)
    assert seen <= held and max(held) == max(seen) and len(held) <= sent < np.prod(shape)
    assert sent <= np.prod([size for size, step in axes if step], dtype=int), "never more than what is shown but for what is shown again"
    memory = np.arange(max(seen) + 1)
    dense = as_strided(memory, grid.sizes, [8 * step for step in grid.steps]).copy()
    assert reach(shape, [0 if size < 2 else step for size, step in zip(shape, grid.strides, strict=True)]) == (0, dense.size - 1)
    again = as_strided(dense, shape, [8 * step for step in grid.strides])
    assert np.array_equal(again, as_strided(memory, shape, [8 * step for step in strides]))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(axes=AXES)
def test_a_view_that_shows_every_place_once_needs_no_grid(axes):
    shape, strides = [size for size, _ in axes], [step for _, step in axes]
    if len(places(shape, strides)) == np.prod(shape):
        assert grid_of(shape, strides) is None


@pytest.mark.parametrize(("shape", "strides", "grid"), [
    ((100, 3, 100, 3), (400, 400, 1, 1), Grid((102, 102), (400, 1), (102, 102, 1, 1))),
    ((5, 4, 3), (0, 0, 1), Grid((3,), (1,), (0, 0, 1))),
    ((4, 5), (0, 0), Grid((), (), (0, 0))),
    ((1 << 40, 1 << 40), (1, 1), Grid(((1 << 41) - 1,), (1,), (1, 1))),
    ((1000, 3, 2), (0, 1000, 1001), Grid((2, 3), (1001, 1000), (0, 1, 3))),
    ((0, 3), (0, 1), None), ((), (), None), ((3, 4), (4, 1), None), ((3, 4), (1, 3), None),
])
def test_known_views_have_the_smallest_grid(shape, strides, grid):
    assert grid_of(shape, strides) == grid


def test_a_view_reaches_below_its_first_element_where_it_runs_backwards():
    assert reach((3, 4), (-4, 1)) == (-8, 3)

"""Rows longer than a block: sums kept against the first block's maximum, and when that no longer serves."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tolerances import worst_ulps
from tests.truth import rows_logsumexp

from online_softmax.ops.softmax import cpu

BLOCK = 1024
INF, NAN = np.inf, np.nan


pytestmark = pytest.mark.usefixtures("instruction_set")


def row_of_blocks(dtype, *levels):
    """A row whose blocks lie around these levels, the last of them short."""
    noise = np.random.default_rng(0).standard_normal(BLOCK * len(levels) - 100)
    with np.errstate(invalid="ignore"):
        return (noise + np.repeat(np.asarray(levels, np.float64), BLOCK)[: noise.size]).astype(dtype)


# What happens to the reference (which may be passed by up to 4 before a block is read twice).
ROWS = {
    "stays": (0, 0, 0, 0),
    "falls": (50, 0, -50, -1000),
    "is passed within reach": (0, 1, 2, 3),
    "is passed beyond reach": (0, 100, 200, 300),
    "is passed within and then beyond": (0, 2, 10, 11),
    "is far below all that comes": (-1e30, 0, 1, 2),
    "is minus infinity at first": (-INF, -INF, 3, 40),
    "meets plus infinity": (0, INF, 5, 6),
    "meets minus infinity": (0, -INF, 5, 6),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("levels", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("nan_in_block", [None, 0, 2])
def test_rows_and_columns_are_right_and_the_same(dtype, levels, nan_in_block):
    x = row_of_blocks(dtype, *levels)
    if nan_in_block is not None:
        x[nan_in_block * BLOCK + 5] = NAN
    rows = np.stack([x, row_of_blocks(dtype, 0, 0, 0, 0), x[::-1]])
    lse = cpu.logsumexp(rows, 1, dtype)
    assert worst_ulps(lse, rows_logsumexp(rows)) < 2
    columns = np.ascontiguousarray(rows.T)
    assert np.array_equal(cpu.logsumexp(columns, 0, dtype), lse, equal_nan=True)
    assert np.array_equal(cpu.softmax(columns, 0, dtype).T, cpu.softmax(rows, 1, dtype), equal_nan=True)


@pytest.mark.parametrize("levels", ROWS.values(), ids=ROWS)
def test_each_level_in_a_column_of_its_own(levels):
    """Seventy columns side by side that need different references at different blocks."""
    rows = np.stack([np.roll(row_of_blocks(np.float32, *levels), shift * 97) for shift in range(70)])
    columns = np.ascontiguousarray(rows.T)
    assert np.array_equal(cpu.logsumexp(columns, 0, np.float32), cpu.logsumexp(rows, 1, np.float32), equal_nan=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_terms_beside_a_maximum_above_the_reference(dtype):
    x = np.full(3 * BLOCK, -INF, dtype)
    x[:20], x[2 * BLOCK] = -20, -16.5  # the reference is -20, the dominant element lies 3.5 above it
    truth = -16.5 + np.log1p(20 * np.exp(-3.5))
    assert abs(cpu.logsumexp(x[None], 1, dtype)[0] / truth - 1) < 2 * np.finfo(dtype).eps
    x[:20], x[2 * BLOCK] = -20, 0  # now it lies beyond reach
    truth = np.log1p(20 * np.exp(-20.0))
    assert abs(cpu.logsumexp(x[None], 1, dtype)[0] / truth - 1) < 4 * np.finfo(dtype).eps

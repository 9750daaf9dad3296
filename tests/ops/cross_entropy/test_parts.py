"""Log-sum-exps of parts, merged into those of whole rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from online_softmax._arrays import namespace
from online_softmax.ops.cross_entropy.parts import merge_parts


def of(x):
    """An array's log-sum-exp along the last axis as two numbers, from longdouble."""
    wide = np.asarray(x, np.longdouble)
    whole = np.log(np.exp(wide).sum(-1))
    lse = whole.astype(np.float32)
    return lse, (whole - lse).astype(np.float32)


@pytest.mark.parametrize("to", [np.asarray, torch.from_numpy])
def test_parts_far_from_one_another_keep_their_small_terms(to):
    rows = np.random.default_rng(0).normal(size=(5, 40)) * 3
    rows[0] += 1e4
    rows[1, 10:] -= 40
    parts = [of(rows[:, cut]) for cut in (slice(0, 10), slice(10, 11), slice(11, 40))]
    lse, low = (to(np.stack(each)) for each in zip(*parts, strict=True))
    got = [np.asarray(each, np.float64) for each in merge_parts(namespace(lse), lse, low)]
    want = [each.astype(np.float64) for each in of(rows - rows.max(1, keepdims=True))]
    exact = rows.max(1) + want[0] + want[1]
    assert np.abs(got[0] + got[1] - exact).max() <= 4 * np.finfo(np.float32).eps


@pytest.mark.parametrize("to", [np.asarray, torch.from_numpy])
def test_a_dominant_part_and_parts_without_a_finite_one(to):
    inf, nan = np.inf, np.nan
    lse = to(np.array([[0, -inf, inf, nan, 200, 1], [-40, -inf, 0, 200, -inf, nan]], np.float32))
    low = to(np.array([[3e-9, 0, 0, 0, 1e-6, 0], [0, 0, 0, 0, 0, 0]], np.float32))
    got, rest = (np.asarray(each) for each in merge_parts(namespace(lse), lse, low))
    np.testing.assert_allclose(got + rest, [3e-9, -inf, inf, nan, 200 + 1e-6, nan], rtol=1e-6)
    np.testing.assert_array_equal(rest[[1, 2, 3, 5]], 0)
    np.testing.assert_allclose(rest[4], 1e-6, rtol=1e-5)

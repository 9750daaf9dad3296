"""The native kernels of softmax on rows with NaN or infinities, dominant elements, or nothing in them."""

from __future__ import annotations

import numpy as np
import pytest

from online_softmax.ops.softmax import cpu

SPECIAL = {
    "nan": [0.0, np.nan, 1.0],
    "nan beside inf": [np.inf, np.nan, 1.0],
    "inf": [0.0, np.inf, 1.0],
    "two inf": [np.inf, np.inf, -np.inf],
    "nothing but -inf": [-np.inf] * 3,
}


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", SPECIAL)
def test_a_row_without_probabilities_is_nan_and_spoils_no_other(instruction_set, name, dtype, columns):
    row = SPECIAL[name] + [0.5] * 1500 if name != "nothing but -inf" else [-np.inf] * 1503
    plain = rng().standard_normal(1503)
    x = np.array([plain, row, plain] * 4, dtype)
    spoiled = np.arange(12) % 3 == 1
    if columns:
        x = np.ascontiguousarray(x.T).T
    alone = cpu.softmax(np.ascontiguousarray(x[:1]), 1, dtype)
    for function in (cpu.softmax, cpu.log_softmax):
        y = function(x.T, 0, dtype).T if columns else function(x, 1, dtype)
        assert np.isnan(y[spoiled]).all()
        assert np.isfinite(y[~spoiled]).all()
    assert np.array_equal(cpu.softmax(x, 1, dtype)[~spoiled], np.repeat(alone, 8, 0))
    lse = cpu.logsumexp(x.T, 0, dtype) if columns else cpu.logsumexp(x, 1, dtype)
    want = np.nan if "nan" in name else -np.inf if name == "nothing but -inf" else np.inf
    assert np.array_equal(lse[spoiled], np.full(4, want, dtype), equal_nan=True)


@pytest.mark.parametrize("where", [0, 700, 1499])
def test_a_special_element_is_found_wherever_it_stands(instruction_set, where):
    for value, want in ((np.nan, np.nan), (np.inf, np.inf)):
        x = rng().standard_normal(1500).astype(np.float32)
        x[where] = value
        assert np.array_equal(cpu.logsumexp(x, 0, np.float32), np.float32(want), equal_nan=True)


def test_minus_infinity_among_finite_is_exactly_zero(instruction_set):
    x = np.array([[1.0, -np.inf, 2.0, -np.inf]], np.float32)
    assert np.array_equal(cpu.softmax(x, 1, np.float32)[0, [1, 3]], [0, 0])
    assert np.array_equal(cpu.log_softmax(x, 1, np.float32)[0, [1, 3]], [-np.inf, -np.inf])


def test_exponentials_below_the_smallest_normal_are_exactly_zero(instruction_set):
    for dtype in (np.float32, np.float64):
        edge = np.log(np.float64(np.finfo(dtype).tiny))
        x = np.array([0.0, edge * (1 + 1e-6), edge * (1 - 1e-6), 3 * edge], dtype)
        y = cpu.softmax(x, 0, dtype)
        assert y[1] == 0
        assert y[2] > 0
        assert y[3] == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [2, 1000, 3000, 70_000])
def test_small_terms_beside_a_dominant_one_survive(instruction_set, dtype, length):
    x = np.full((length, 10), -np.inf, dtype)
    x[length // 3] = 0.0
    x[length // 2] = -40.0
    for y in (cpu.logsumexp(x, 0, dtype), cpu.logsumexp(np.ascontiguousarray(x.T), 1, dtype)):
        assert np.allclose(y, 4.248354255291589e-18, rtol=1e-6, atol=0)
    assert np.allclose(cpu.log_softmax(x, 0, dtype)[length // 3], -4.248354255291589e-18, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("shape", "axis"), [((0, 5), 1), ((5, 0), 0), ((3, 0), 1), ((0,), 0), ((0, 5), 0), ((2, 0, 9), 1)]
)
def test_no_elements(shape, axis):
    x = np.empty(shape, np.float32)
    assert cpu.softmax(x, axis, np.float32).shape == shape
    assert cpu.log_softmax(x, axis, np.float32).shape == shape
    lse = cpu.logsumexp(x, axis, np.float32)
    assert lse.shape == tuple(np.delete(shape, axis))
    assert (lse == -np.inf).all()

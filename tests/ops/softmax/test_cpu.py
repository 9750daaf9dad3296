"""The native kernels of softmax, log_softmax, logsumexp and their gradients, against float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.tolerances import worst_ulps
from tests.truth import log_softmax_gradient, rows_log_softmax, rows_logsumexp, rows_softmax, softmax_gradient

from online_softmax.ops.softmax import cpu

# One vector and its ends, one block (1024) and its ends, one piece (32768) and its ends, several pieces.
LENGTHS = [1, 2, 7, 31, 32, 33, 128, 1023, 1024, 1025, 5000, 32768, 32769, 100_000]


def poisoned(shape, dtype):
    return np.full(shape, np.nan, dtype)


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_every_length_are_within_a_few_ulp(instruction_set, dtype, length):
    x = (3 * rng().standard_normal((3, length))).astype(dtype)
    largest = np.abs(x).max()
    y = cpu.softmax(x, 1, dtype, poisoned(x.shape, dtype))
    # Rounding x - m moves exp(x - m) by as many units as x - m is large.
    assert worst_ulps(y, rows_softmax(x, 1)) < 4 + np.ptp(x)
    log_y = cpu.log_softmax(x, 1, dtype, poisoned(x.shape, dtype))
    assert worst_ulps(log_y, rows_log_softmax(x, 1), largest) < 3
    assert worst_ulps(cpu.logsumexp(x, 1, dtype), rows_logsumexp(x, 1), largest) < 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_errors_over_a_thousand_rows_are_at_most_torchs_worst_plus_two(instruction_set, dtype):
    x = (rng().standard_normal((1000, 999)) * np.geomspace(0.1, 50, 1000)[:, None]).astype(dtype)
    t = torch.from_numpy(x)
    largest = np.abs(x).max(1, keepdims=True)
    for ours, theirs, truth, scale in [
        (cpu.softmax(x, 1, dtype), torch.softmax(t, 1), rows_softmax(x, 1), 0.0),
        (cpu.log_softmax(x, 1, dtype), torch.log_softmax(t, 1), rows_log_softmax(x, 1), largest),
        (cpu.logsumexp(x, 1, dtype), torch.logsumexp(t, 1), rows_logsumexp(x, 1), largest[:, 0]),
    ]:
        big = truth > 1e-30 if np.ndim(scale) == 0 else np.ones(truth.shape, bool)
        truth = np.where(big, truth, 0.0)
        worst = worst_ulps(np.where(big, ours, 0.0), truth, scale)
        assert worst <= worst_ulps(np.where(big, theirs.numpy(), 0.0), truth, scale) + 2


@pytest.mark.parametrize(
    ("shape", "axis"), [((5, 1500), 0), ((5, 1500), 1), ((3, 40, 70), 1), ((2, 1100, 9), 1), ((4, 50, 3), 1)]
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_dtype_is_rounded_once_from_the_compute_dtype(instruction_set, dtype, shape, axis):
    x = torch.from_numpy(2 * rng().standard_normal(shape)).to(dtype)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    for function in (cpu.softmax, cpu.log_softmax, cpu.logsumexp):
        result = function(x, axis, dtype)
        assert result.dtype is dtype
        assert torch.equal(result, function(x.to(wide), axis, wide).to(dtype))


@pytest.mark.parametrize("to", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("given", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_pair_of_dtypes(instruction_set, given, to):
    x = torch.from_numpy(rng().standard_normal((20, 300))).to(given)
    wide = torch.float64 if torch.float64 in (given, to) else torch.float32
    for axis in (0, 1):
        y = cpu.softmax(x, axis, to)
        assert y.dtype is to
        truth = torch.from_numpy(rows_softmax(x.double().numpy(), axis))
        assert torch.allclose(y.double(), truth, rtol=2 * torch.finfo(to).eps, atol=1e-7)
        assert torch.equal(y, cpu.softmax(x.to(wide), axis, wide).to(to))
        grad = torch.from_numpy(rng(1).standard_normal((20, 300))).to(given)
        dx = cpu.softmax_backward(grad, y, axis, given)
        assert dx.dtype is given
        want = softmax_gradient(grad.double().numpy(), y.double().numpy(), axis)
        assert np.allclose(dx.double().numpy(), want, rtol=2 * torch.finfo(given).eps, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "axis"), [((4, 3000), 1), ((3000, 40), 0), ((2, 1030, 5), 1), ((7, 33), 1), ((70_000, 9), 0)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients(instruction_set, dtype, shape, axis):
    x, grad = (rng(seed).standard_normal(shape).astype(dtype) for seed in (0, 1))
    tolerance = {"rtol": 100 * np.finfo(dtype).eps, "atol": 100 * np.finfo(dtype).eps}
    y = cpu.softmax(x, axis, dtype)
    dx = cpu.softmax_backward(grad, y, axis, dtype, poisoned(shape, dtype))
    assert np.allclose(dx, softmax_gradient(grad, y, axis), **tolerance)
    y = cpu.log_softmax(x, axis, dtype)
    dx = cpu.log_softmax_backward(grad, y, axis, dtype, poisoned(shape, dtype))
    tolerance["atol"] *= 100
    assert np.allclose(dx, log_softmax_gradient(grad, y, axis), **tolerance)
    lse = cpu.logsumexp(x, axis, dtype)
    g = np.take(grad, 0, axis)
    dx = cpu.logsumexp_backward(g, x, lse, axis, poisoned(shape, dtype))
    assert np.allclose(dx, np.expand_dims(g, axis) * rows_softmax(x, axis), **tolerance)


def test_logsumexp_backward_of_infinite_rows_shares_the_gradient():
    inf = np.inf
    x = np.array([[inf, 1, inf, -inf], [-inf] * 4, [0, -inf, 0, -inf], [np.nan, 0, 0, 0]], np.float32)
    lse = cpu.logsumexp(x, 1, np.float32)
    assert np.array_equal(lse[:2], [inf, -inf])
    dx = cpu.logsumexp_backward(np.full(4, 3, np.float32), x, lse, 1)
    assert np.array_equal(dx[:3], [[1.5, 0, 1.5, 0], [0] * 4, [1.5, 0, 1.5, 0]])
    assert np.isnan(dx[3]).all()
    dx = cpu.logsumexp_backward(np.full(4, inf, np.float32), x, lse, 1)
    assert np.array_equal(dx[2], [inf, 0, inf, 0])


def test_broadcast_gradients():
    y = cpu.softmax(torch.randn(50, 300), 0, torch.float32)
    ones = torch.ones(()).expand(50, 300)
    for axis in (0, 1):
        assert torch.equal(
            cpu.softmax_backward(ones, y, axis, torch.float32),
            cpu.softmax_backward(ones.contiguous(), y, axis, torch.float32),
        )
    lse = torch.logsumexp(y, 0)
    for grad in (torch.ones(()).expand(300), torch.randn(600)[::2]):
        assert torch.equal(
            cpu.logsumexp_backward(grad, y, lse, 0), cpu.logsumexp_backward(grad.contiguous(), y, lse, 0)
        )


def test_large_results_are_ordinary_tensors():
    x = torch.randn(1100, 1000)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        y = cpu.softmax(x, 1, dtype)
        assert y.dtype is dtype
        assert y.is_contiguous()
        y.add_(1)  # writable
    assert torch.equal(cpu.softmax(x, 1, torch.float32), torch.from_numpy(cpu.softmax(x.numpy(), 1, np.float32)))


def test_more_than_two_to_the_31_elements():
    x = np.broadcast_to(np.zeros(1, np.float16), (1, 2**31 + 5))
    assert cpu.logsumexp(x, 1, np.float32)[0] == np.float32(np.log(2.0**31 + 5))

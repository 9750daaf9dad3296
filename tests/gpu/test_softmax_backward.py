"""Gradients of softmax, log_softmax and logsumexp on the GPU against float64."""

from __future__ import annotations

import pytest
import torch
from cases import DTYPES, LONG, error, lengths, poisoned, random_rows, special_rows

gpu = pytest.importorskip("online_softmax.ops.softmax.cuda") if torch.cuda.is_available() else None

BOUND = {torch.float16: 1.0, torch.bfloat16: 1.0, torch.float32: 30.0, torch.float64: 30.0}


def check_backward(x: torch.Tensor, grad: torch.Tensor, axis: int = 1) -> None:
    dtype = x.dtype
    g = grad.double()
    y = x.double().softmax(axis).to(dtype)
    p = y.double()
    truth = p * (g - (g * p).sum(axis, keepdim=True))
    size = p * (g.abs() + (g * p).abs().sum(axis, keepdim=True))
    dx = gpu.softmax_backward(grad, y, axis, dtype, poisoned(x.shape, dtype))
    assert error(dx, truth, size) <= BOUND[dtype], ("softmax", x.shape, dtype)
    y = x.double().log_softmax(axis).to(dtype)
    p = y.double().exp()
    truth = g - p * g.sum(axis, keepdim=True)
    size = g.abs() + p * g.abs().sum(axis, keepdim=True)
    dx = gpu.log_softmax_backward(grad, y, axis, dtype, poisoned(x.shape, dtype))
    assert error(dx, truth, size) <= BOUND[dtype], ("log_softmax", x.shape, dtype)
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    lse = gpu.logsumexp(x, axis, compute)
    weights = grad.double().sum(axis).to(compute)
    truth = weights.double().unsqueeze(axis) * (x.double() - lse.double().unsqueeze(axis)).exp()
    dx = gpu.logsumexp_backward(weights, x, lse, axis, poisoned(x.shape, dtype))
    assert error(dx, truth) <= BOUND[dtype], ("logsumexp", x.shape, dtype)


@pytest.mark.parametrize(("dtype", "length"), [(torch.float32, 6000), (torch.bfloat16, 12000), (torch.float32, 11000)])
def test_blocks_whose_words_take_48_kib(dtype, length):
    # 48 KiB are granted unasked; they must hold the words and the kernel's own variables together.
    check_backward(random_rows(5, length, dtype), random_rows(5, length, dtype, seed=1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 1])
def test_rows_of_every_regime(dtype, offset):
    for length in lengths(dtype):
        check_backward(random_rows(5, length, dtype), random_rows(5, length, dtype, offset, seed=1))


@pytest.mark.parametrize("offset", [0, 1])
def test_clusters_that_stay_take_row_after_row(offset):
    for dtype, length in ((torch.float32, 400003), (torch.bfloat16, 1000000)):  # more rows than clusters find room for
        check_backward(random_rows(30, length, dtype), random_rows(30, length, dtype, offset, seed=1))


def test_rows_beyond_a_cluster():
    for length in LONG["shared memory to the brim, then split"]:
        for offset in (0, 1):
            x = random_rows(3, length, torch.bfloat16, offset)
            check_backward(x, random_rows(3, length, torch.bfloat16, 0, seed=1))


def test_other_axes_and_strides():
    for shape, axis in (((7, 33, 5), 1), ((3, 130, 70), 1), ((1000, 3), 0), ((2, 3000, 33), 1)):
        size = torch.Size(shape).numel()
        x = random_rows(1, size, torch.float32).reshape(shape)
        check_backward(x, random_rows(1, size, torch.float32, seed=1).reshape(shape), axis)
    x = random_rows(6, 500, torch.float32)
    check_backward(x, torch.ones((), device=x.device).expand(6, 500))
    check_backward(x, random_rows(500, 6, torch.float32).t())
    check_backward(x, random_rows(1, 500, torch.float32).expand(6, 500))


def test_a_result_in_another_dtype_than_its_input():
    for length in (100, 50257):  # float32 results of 16-bit inputs, as autocast makes them
        x = random_rows(3, length, torch.bfloat16)
        y = x.double().softmax(1).float()
        g = random_rows(3, length, torch.float32, seed=1)
        truth = y.double() * (g - (g.double() * y).sum(1, keepdim=True))
        assert error(gpu.softmax_backward(g, y, 1, torch.bfloat16), truth, y.double() * 30) <= 1


@pytest.mark.parametrize("length", [5, 700, 9000, 50257])
def test_logsumexp_of_infinite_rows(length):
    x = special_rows(length, torch.float32)
    x[3], x[6] = x[0], x[0]  # NaN rows are NaN; those with infinities are what is asked here
    lse = gpu.logsumexp(x, 1, torch.float32)
    grad = torch.arange(1.0, 9.0, device=x.device)
    truth = grad[:, None].double() * (x.double() - lse.double()[:, None]).exp()
    infinite = x == torch.inf
    shared = grad[:, None].double() * infinite / infinite.sum(1, keepdim=True).clamp(min=1)
    truth = torch.where(lse[:, None] == torch.inf, shared, truth)
    truth[lse == -torch.inf] = 0
    assert error(gpu.logsumexp_backward(grad, x, lse, 1), truth, 1e-30) <= 40
    columns = gpu.logsumexp_backward(grad, x.t().contiguous(), lse, 0)
    assert error(columns.t(), truth, 1e-30) <= 40

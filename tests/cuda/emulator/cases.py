"""What the tests of emulated kernels share: rows among neighbours, special rows, lengths that a regime takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.tolerances import assert_no_worse, worst_ulps

from online_softmax._cuda.geometry import Geometry, words_of

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
INF, NAN = torch.inf, torch.nan
BETWEEN = 3  # elements from a row to the next: rows so start anywhere in a word


def framed(x: torch.Tensor, fill: float = NAN, offset: int = 1) -> torch.Tensor:
    """The same rows, `offset` elements off 16 bytes and among elements of `fill`: see `frame_of`."""
    rows, length = x.shape
    width = length + BETWEEN
    around = torch.full((16 + (rows + 1) * width,), fill, dtype=x.dtype)
    start = -(around.data_ptr() // x.element_size()) % (16 // x.element_size()) + offset
    view = around[start : start + rows * width].view(rows, width)[:, :length]
    view.copy_(x)
    return view


def frame_of(view: torch.Tensor) -> torch.Tensor:
    """The elements around rows that `framed` gave."""
    rows, length = view.shape
    around = torch.empty(0, dtype=view.dtype).set_(view.untyped_storage())
    outside = torch.ones(around.numel(), dtype=torch.bool)
    for row in range(rows):
        start = view.storage_offset() + row * view.stride(0)
        outside[start : start + length] = False
    return around[outside]


def special_rows(length: int, dtype: torch.dtype) -> torch.Tensor:
    """Normal numbers times three, those far from zero and half -inf; then all -inf, +inf, NaN, and +inf with NaN."""
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(7, length, generator=generator).mul_(3).to(dtype)
    x[1] += 300
    x[2, ::2] = -INF
    x[3] = -INF
    x[4, length // 2] = INF
    x[5, length - 1] = NAN
    x[6, 0], x[6, length - 1] = INF, NAN
    return x


def with_a_dominant_one(length: int, log_of_rest: float) -> torch.Tensor:
    """Rows whose first, middle or last element is 0, and the others' exponentials sum to exp(log_of_rest)."""
    x = torch.full((3, length), log_of_rest - torch.log(torch.tensor(length - 1.0, dtype=F64)).item(), dtype=F32)
    for row, at in enumerate((0, length // 2, length - 1)):
        x[row, at] = 0
    return x


def first_length(plan_of: Callable[[int], Any], fits: Callable[[Geometry], bool], dtype: torch.dtype) -> int:
    """An odd length of rows that start anywhere, the first found for which a plan's shape fits."""
    length = 1
    while not fits(plan_of(words_of(length, dtype.itemsize, False)).shape):
        length += 2 + length // 64 * 2
        assert length < 2**22, "no row is taken so"
    return length


def assert_as_accurate_as_torch(name: str, x: torch.Tensor, got: torch.Tensor) -> None:
    """The rule for results, with torch's own as the peer, for rows with a finite maximum; others have one answer."""
    function = getattr(torch, name)
    finite = x.amax(1).isfinite()
    truth = function(x.double(), 1)
    m = 0.0 if name == "softmax" else x.double().amax(1, keepdim=name != "logsumexp")[finite]
    # torch in fp64 is the truth itself.
    peer = 2.0 if x.dtype == F64 else worst_ulps(function(x[finite], 1).to(got.dtype), truth[finite], m)
    assert_no_worse(worst_ulps(got[finite], truth[finite], m), peer)
    if name != "logsumexp":
        truth[(x == INF).any(1)] = NAN
    assert worst_ulps(got[~finite], truth[~finite]) == 0

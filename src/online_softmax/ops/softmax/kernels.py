"""Launches of the row kernels: which takes which rows is in plans.py."""

from __future__ import annotations

from functools import lru_cache

import torch

from ..._cuda import geometry
from ..._cuda.geometry import Geometry
from ..._cuda.launch import Loaded, load_first_fitting
from ..._cuda.limits import Limits
from ..._cuda.ready import Ready
from ..._cuda.rows import Rows, compute_dtype
from . import plans
from .plans import LOGSUMEXP, Plan


@lru_cache(maxsize=4096)
def _kernels(
    kind: str, device: int, operation: int, dtype: torch.dtype, out: torch.dtype, words: int
) -> tuple[tuple[Loaded, ...], Geometry, str]:
    def plan_of(limits: Limits) -> Plan:
        if kind == "forward":
            return plans.forward(operation, words, dtype.itemsize, limits)
        if kind == "backward":
            return plans.backward(words, dtype.itemsize, limits)
        return plans.logsumexp_backward(words, dtype.itemsize)

    loaded, plan = load_first_fitting(device, plan_of, lambda found: found.sources(operation, dtype, out))
    return loaded, plan.shape, plan.file


def forward(operation: int, rows: Rows, y: torch.Tensor, y_stride: int) -> Ready | None:
    """Launch over all rows; logsumexp leaves one number a row.  Returns how to do it again, if it was one launch."""
    x = rows.tensor
    words = geometry.words_of(rows.length, x.element_size(), rows.aligned)
    kernels, shape, file = _kernels("forward", x.get_device(), operation, x.dtype, y.dtype, words)
    where = (rows.inner, rows.outer_stride, rows.inner_stride)
    if file != "split.cu":
        grid, rest = shape.grid(rows.number, kernels[0].resident), (rows.number, rows.length, *where, y_stride)
        kernels[0](grid, x.data_ptr(), y.data_ptr(), *rest)
        return Ready(kernels[0], grid, rest)
    pieces = shape.pieces(words)
    states = torch.empty((rows.number, pieces, 2), dtype=compute_dtype(x.dtype, y.dtype), device=x.device)
    summarise, merge, write = kernels
    summarise(rows.number * pieces, x.data_ptr(), rows.length, pieces, *where, states.data_ptr())
    merge(rows.number, x.data_ptr(), rows.length, pieces, *where, states.data_ptr(), y.data_ptr())
    if operation != LOGSUMEXP:
        write(
            rows.number * pieces, x.data_ptr(), y.data_ptr(), rows.length, pieces, *where, y_stride, states.data_ptr()
        )
    return None


def backward(operation: int, grad: Rows, y: Rows, dx: torch.Tensor, dx_stride: int) -> Ready | None:
    """Launch over all rows.  Returns how to do it again, if it was one launch."""
    words = geometry.words_of(y.length, y.tensor.element_size(), y.aligned)
    device, dtype = y.tensor.get_device(), y.tensor.dtype
    kernels, shape, file = _kernels("backward", device, operation, dtype, dx.dtype, words)
    pointers = (grad.tensor.data_ptr(), y.tensor.data_ptr())
    where = (grad.inner, grad.outer_stride, grad.inner_stride, y.inner, y.outer_stride, y.inner_stride)
    if file != "backward_split.cu":
        grid, rest = shape.grid(y.number, kernels[0].resident), (y.number, y.length, *where, dx_stride)
        kernels[0](grid, *pointers, dx.data_ptr(), *rest)
        return Ready(kernels[0], grid, rest)
    pieces = shape.pieces(words)
    sums = torch.empty((y.number, pieces), dtype=compute_dtype(dtype, dx.dtype), device=dx.device)
    add, merge, write = kernels
    add(y.number * pieces, *pointers, y.length, pieces, *where, sums.data_ptr())
    merge(y.number, sums.data_ptr(), pieces)
    write(y.number * pieces, *pointers, dx.data_ptr(), y.length, pieces, *where, dx_stride, sums.data_ptr())
    return None


def logsumexp_backward(grad: torch.Tensor, x: Rows, lse: torch.Tensor, dx: torch.Tensor, dx_stride: int) -> None:
    """Launch over all rows; grad and lse contiguous, in the compute dtype."""
    words = geometry.words_of(x.length, x.tensor.element_size(), x.aligned)
    device, dtype = x.tensor.get_device(), x.tensor.dtype
    (kernel,), shape, _ = _kernels("logsumexp_backward", device, LOGSUMEXP, dtype, dx.dtype, words)
    pieces = shape.pieces(words)
    kernel(
        shape.grid(x.number, 0) * pieces,
        grad.data_ptr(),
        x.tensor.data_ptr(),
        lse.data_ptr(),
        dx.data_ptr(),
        x.number,
        x.length,
        pieces,
        x.inner,
        x.outer_stride,
        x.inner_stride,
        dx_stride,
    )

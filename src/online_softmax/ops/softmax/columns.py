"""Launches of columns.cu: softmax along an axis that is not the last, without a transposing copy."""

from __future__ import annotations

import torch

from ..._cuda.launch import Loaded, load
from ..._cuda.rows import Columns, columns_of, output_columns
from . import plans


def _lanes(inner: int) -> int:
    return min(32, 1 << (inner - 1).bit_length())


def _kernel(
    x: Columns, operation: int, backward: bool, out: torch.dtype, entry: str = "softmax_columns"
) -> tuple[Loaded, int]:
    lanes = _lanes(x.inner)
    kernel = load(
        x.tensor.get_device(),
        plans.columns(operation, backward, x.tensor.dtype, out, lanes, entry),
        plans.COLUMN_THREADS,
    )
    return kernel, x.outer * -(-x.inner // lanes)


def writes(out: torch.Tensor, axis: int) -> bool:
    """Whether the kernels can write straight into `out`."""
    return output_columns(out, axis) is not None


def _target(y: torch.Tensor, axis: int, reduced: bool) -> tuple[int, int, int]:
    """Pointer, stride from one outer index to the next and along the axis (elements)."""
    if reduced:
        return y.data_ptr(), 1, 1
    columns = output_columns(y, axis)
    assert columns is not None
    return y.data_ptr(), columns.outer_stride, columns.axis_stride


def forward(operation: int, x: torch.Tensor, axis: int, y: torch.Tensor) -> None:
    """Launch over all columns; logsumexp leaves one number a column."""
    reduced = y.ndim < x.ndim
    columns = columns_of(x, axis)
    kernel, grid = _kernel(columns, operation, False, y.dtype)
    pointer, outer_stride, axis_stride = _target(y, axis, reduced)
    kernel(
        grid,
        columns.tensor.data_ptr(),
        columns.outer_stride,
        columns.axis_stride,
        0,
        0,
        0,
        pointer,
        columns.inner if reduced else outer_stride,
        axis_stride,
        columns.length,
        columns.inner,
    )


def backward(operation: int, grad: torch.Tensor, y: torch.Tensor, axis: int, dx: torch.Tensor) -> None:
    """Launch over all columns."""
    results, incoming = columns_of(y, axis), columns_of(grad, axis)
    kernel, grid = _kernel(results, operation, True, dx.dtype)
    kernel(
        grid,
        results.tensor.data_ptr(),
        results.outer_stride,
        results.axis_stride,
        incoming.tensor.data_ptr(),
        incoming.outer_stride,
        incoming.axis_stride,
        *_target(dx, axis, False),
        results.length,
        results.inner,
    )


def logsumexp_backward(grad: torch.Tensor, x: torch.Tensor, lse: torch.Tensor, axis: int, dx: torch.Tensor) -> None:
    """Launch over all columns; grad and lse contiguous, in the compute dtype."""
    columns = columns_of(x, axis)
    kernel, grid = _kernel(columns, 0, True, dx.dtype, "logsumexp_backward_columns")
    kernel(
        grid,
        grad.data_ptr(),
        columns.tensor.data_ptr(),
        columns.outer_stride,
        columns.axis_stride,
        lse.data_ptr(),
        *_target(dx, axis, False),
        columns.length,
        columns.inner,
    )

"""Tensors as rows, or as columns: where each one starts and whether 16-byte words fit."""

from __future__ import annotations

from typing import NamedTuple

import torch

NAMES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float",
    torch.float64: "double",
}
LABELS = {torch.int32: "int", torch.int64: "long long"}
"""Of class indices."""


def compute_dtype(*dtypes: torch.dtype) -> torch.dtype:
    """What sums are kept in: float64 as soon as one of the dtypes is, else float32."""
    return torch.float64 if torch.float64 in dtypes else torch.float32


class Rows(NamedTuple):
    """Rows along the last axis of a tensor, neighbouring elements side by side."""

    tensor: torch.Tensor
    number: int
    length: int
    inner: int  # rows along the inner of two strided axes; all of them where one stride is enough
    outer_stride: int  # elements
    inner_stride: int
    aligned: bool  # every row starts on 16 bytes


class Columns(NamedTuple):
    """Lines along an axis that is not the last: (outer, length, inner), neighbours along `inner` side by side."""

    tensor: torch.Tensor
    outer: int
    length: int
    inner: int
    outer_stride: int  # elements
    axis_stride: int


def _merged(x: torch.Tensor, axes: range) -> list[tuple[int, int]]:
    """(size, stride) of the fewest axes that visit the same elements in the same order."""
    merged: list[tuple[int, int]] = []
    for axis in axes:
        size, stride = x.shape[axis], x.stride(axis)
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return merged


def _as_rows(x: torch.Tensor) -> Rows | None:
    length, size = x.shape[-1], x.element_size()
    start = x.data_ptr() % 16 == 0
    if x.is_contiguous():
        count = x.numel() // length
        return Rows(x, count, length, count, 0, length, start and length * size % 16 == 0)
    axes = _merged(x, range(x.ndim - 1))
    if (length > 1 and x.stride(-1) != 1) or len(axes) > 2:
        return None
    (outer, outer_stride), (inner, inner_stride) = [(1, 0)] * (2 - len(axes)) + axes
    if outer > 1 and outer * inner >= 2**31:
        return None  # RowMap (rows.cuh) divides in 32 bits
    step = 16 // size
    aligned = start and outer_stride % step == 0 and inner_stride % step == 0
    return Rows(x, outer * inner, length, inner, outer_stride, inner_stride, aligned)


def rows_of(x: torch.Tensor) -> Rows:
    """The rows of `x` along its last axis, without a copy unless elements lie apart or three strides are needed."""
    rows = _as_rows(x) or _as_rows(x.contiguous())
    assert rows is not None
    return rows


def row_stride(x: torch.Tensor) -> int | None:
    """The one stride from row to row of an output; None where rows cannot be written in place."""
    rows = _as_rows(x)
    return rows.inner_stride if rows is not None and rows.inner == rows.number else None


def _as_columns(x: torch.Tensor, axis: int) -> Columns | None:
    before, after = _merged(x, range(axis)), _merged(x, range(axis + 1, x.ndim))
    if len(before) > 1 or len(after) > 1 or (after and after[0][1] != 1):
        return None
    outer, outer_stride = before[0] if before else (1, 0)
    inner = after[0][0] if after else 1
    return Columns(x, outer, x.shape[axis], inner, outer_stride, x.stride(axis))


def columns_of(x: torch.Tensor, axis: int) -> Columns:
    """The lines of `x` along an axis, without a copy unless the strides need one."""
    columns = _as_columns(x, axis) or _as_columns(x.contiguous(), axis)
    assert columns is not None
    return columns


def output_columns(x: torch.Tensor, axis: int) -> Columns | None:
    """The lines of an output; None where they cannot be written in place."""
    return _as_columns(x, axis)


def is_last(x: torch.Tensor, axis: int) -> bool:
    """Whether nothing lies between neighbours along the axis: rows, not columns."""
    return all(size == 1 for size in x.shape[axis + 1 :])

"""Tensors as rows: where each row starts and whether 16-byte words fit."""

from __future__ import annotations

from typing import NamedTuple

import torch

NAMES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float",
    torch.float64: "double",
}


class Rows(NamedTuple):
    """Rows along the last axis of a tensor, neighbouring elements side by side."""

    tensor: torch.Tensor
    count: int
    length: int
    inner: int  # rows along the inner of two strided axes; all of them where one stride is enough
    outer_stride: int  # elements
    inner_stride: int
    aligned: bool  # every row starts on 16 bytes


def _strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """(size, stride) of the fewest axes that visit the same elements in the same order."""
    axes: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * stride:
            axes[-1] = (axes[-1][0] * size, stride)
        else:
            axes.append((size, stride))
    return axes


def rows_of(x: torch.Tensor) -> Rows:
    """The rows of `x` along its last axis, without a copy unless elements lie apart or three strides are needed."""
    length = x.shape[-1]
    if x.is_contiguous():
        aligned = x.data_ptr() % 16 == 0 and length * x.element_size() % 16 == 0
        count = x.numel() // length
        return Rows(x, count, length, count, 0, length, aligned)
    axes = _strides(x.shape[:-1], x.stride()[:-1])
    if (length > 1 and x.stride(-1) != 1) or len(axes) > 2:
        return rows_of(x.contiguous())
    if len(axes) < 2:
        axes = [(1, 0)] * (2 - len(axes)) + axes
    (outer, outer_stride), (inner, inner_stride) = axes
    step = 16 // x.element_size()
    aligned = x.data_ptr() % 16 == 0 and outer_stride % step == 0 and inner_stride % step == 0
    return Rows(x, outer * inner, length, inner, outer_stride, inner_stride, aligned)

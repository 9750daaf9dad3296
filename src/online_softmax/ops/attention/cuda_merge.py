"""Merging on CUDA tensors: which kernel, in which shape, launched with what."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._arrays import namespace
from ..._cuda.launch import Loaded, load
from .kernels import Shape, source
from .steps import merge_weights

_THREADS = 256
_LISTED = 32  # partial results that travel as pointers of their own; more are stacked first


class Array(NamedTuple):
    """One array a partial result: stacked with a stride, or a list of addresses; 0 for one that is not there."""

    addresses: list[int]
    stride: int | None


def merge(outs: Sequence[Tensor], lses: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """(out, lse) of partial results of the same queries, each read once, in one launch."""
    outs, lses = _contiguous(outs), _contiguous(lses)
    first = outs[0]
    out = torch.empty(first.shape, dtype=first.dtype, device=first.device)
    lse = torch.empty(first.shape[:-1], dtype=lses[0].dtype, device=first.device)
    if not out.numel():
        return out, torch.logsumexp(torch.stack(lses), 0)
    arrays = [_array(outs), _array(lses)]
    shape, rows, packs = _shape(outs, lses, arrays, False)
    kernel = _kernel(first.get_device(), shape)
    grid = -(-rows * packs // _THREADS)
    kernel(grid, out.data_ptr(), lse.data_ptr(), rows, packs, *_arguments(arrays, shape, len(outs)))
    return out, lse


def merge_backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    outs: Sequence[Tensor],
    lses: Sequence[Tensor],
    out: Tensor,
    lse: Tensor,
    grad_outs: Sequence[Tensor | None],
    grad_lses: Sequence[Tensor | None],
) -> None:
    """Writes the gradients of outs and lses to the tensors given, in one launch."""
    if not out.numel():
        for w, each in zip(merge_weights(namespace(out), lses), grad_lses, strict=True):
            if each is not None:
                each.copy_(torch.zeros_like(w) if grad_lse is None else w * grad_lse)
        return
    outs, lses = _contiguous(outs), _contiguous(lses)
    targets = [[None if x is None else _target(x) for x in grads] for grads in (grad_outs, grad_lses)]
    grad_out = grad_out.contiguous()
    grad_lse = None if grad_lse is None else grad_lse.contiguous()
    arrays = [_array(outs), _array(lses), *(_array(each) for each in targets)]
    shape, rows, packs = _shape(outs, lses, arrays, True, grad_out, out)
    kernel = _kernel(out.get_device(), shape)
    along = 0 if grad_lse is None else grad_lse.data_ptr()
    grid = -(-rows * shape.lanes // _THREADS)
    kernel(grid, grad_out.data_ptr(), along, out.data_ptr(), rows, packs, *_arguments(arrays, shape, len(outs)))
    for grads, written in zip((grad_outs, grad_lses), targets, strict=True):
        for wanted, filled in zip(grads, written, strict=True):
            if wanted is not None and filled is not None and filled is not wanted:
                wanted.copy_(filled)


@lru_cache(maxsize=4096)
def _kernel(device: int, shape: Shape) -> Loaded:
    return load(device, source(shape), _THREADS)


def _shape(
    outs: Sequence[Tensor], lses: Sequence[Tensor], arrays: list[Array], backward: bool, *others: Tensor
) -> tuple[Shape, int, int]:
    """The kernel's shape, the rows and the packs of a row."""
    size, itemsize, rows = outs[0].shape[-1], outs[0].element_size(), lses[0].numel()
    starts = [*arrays[0].addresses, *(x.data_ptr() for x in others), *(arrays[2].addresses if backward else [])]
    strides = [array.stride for array in arrays[::2] if array.stride is not None]
    width = 16 // itemsize
    while width > 1 and (
        size % width or any(start % (width * itemsize) for start in starts) or any(stride % width for stride in strides)
    ):
        width //= 2
    packs = size // width
    lanes = 0
    if backward:
        lanes = 1
        while lanes < 32 and lanes < packs:
            lanes *= 2
    stacked = all(array.stride is not None for array in arrays)
    most = 4 if backward else 8
    chunk = next(step for step in (1, 2, 4, 8) if step >= min(len(outs), most))
    wide = not backward and rows * packs + _THREADS >= 2**32
    count = 0 if stacked else len(outs)
    return Shape(outs[0].dtype, lses[0].dtype, width, chunk, wide, count, lanes), rows, packs


def _arguments(arrays: list[Array], shape: Shape, count: int) -> list[int]:
    if shape.partials:
        return [address for array in arrays for address in array.addresses]
    found: list[int] = []
    for array in arrays:
        found += array.addresses[0], array.stride or 0
    return [*found, count]


def _array(tensors: Sequence[Tensor | None]) -> Array:
    """Where the partial results lie; with a stride when they lie evenly, as those of one stacked tensor do."""
    if tensors[0] is None:
        if any(each is not None for each in tensors):
            return Array([0 if each is None else each.data_ptr() for each in tensors], None)
        return Array([0] * len(tensors), 0)
    addresses = [0 if each is None else each.data_ptr() for each in tensors]
    if len(addresses) == 1:
        return Array(addresses, 0)
    step = addresses[1] - addresses[0]
    even = all(b - a == step for a, b in pairwise(addresses)) and 0 not in addresses
    return Array(
        addresses, step // tensors[0].element_size() if even and step % tensors[0].element_size() == 0 else None
    )


def _contiguous(tensors: Sequence[Tensor]) -> list[Tensor]:
    found = [each.contiguous() for each in tensors]
    if len(found) > _LISTED and _array(found).stride is None:
        return list(torch.stack(found).unbind(0))
    return found


def _target(x: Tensor) -> Any:
    return x if x.is_contiguous() else torch.empty(x.shape, dtype=x.dtype, device=x.device)

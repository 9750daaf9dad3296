"""Merging on CUDA tensors: which kernel, in which shape, launched with what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._arrays import namespace
from ..._cuda.launch import Loaded, load
from .kernels import LISTED, THREADS, Shape, shape_of, source
from .steps import merge_weights

_MANY_ROWS = 2**32 - THREADS  # numbers of rows, and of those beside them in the last block, in 64 bits

Partials = Tensor | Sequence[Tensor]
"""Partial results, stacked along the first axis or one by one."""


class _Array(NamedTuple):
    """One array a partial result: where each begins; or, with a stride in bytes, where the first does."""

    addresses: list[int]
    stride: int | None
    held: object
    """Tensors that must live until the kernel is launched."""

    def listed(self, count: int) -> list[int]:
        """Where each begins; 0 for those that are not there."""
        if self.stride is None:
            return self.addresses
        return [self.addresses[0] + i * self.stride for i in range(count)] if self.addresses[0] else [0] * count


def merge(outs: Partials, lses: Partials) -> tuple[Tensor, Tensor]:
    """(out, lse) of partial results of the same queries, each read once, in one launch."""
    like, like_lse = (each if isinstance(each, Tensor) else each[0] for each in (outs, lses))
    shape = like.shape[1:] if isinstance(outs, Tensor) else like.shape
    out = torch.empty(shape, dtype=like.dtype, device=like.device)
    lse = torch.empty(shape[:-1], dtype=like_lse.dtype, device=like.device)
    if not out.numel():
        return out, torch.logsumexp(lses if isinstance(lses, Tensor) else torch.stack(list(lses)), 0)
    count = len(outs)
    arrays = [_array(outs, count), _array(lses, count)]
    kernel, form = _kernel(arrays, out, lse, count, (), False)
    rows = lse.numel()
    grid = -(-rows * form.lanes // THREADS)
    kernel(grid, out.data_ptr(), lse.data_ptr(), rows, shape[-1] // form.width, *_arguments(arrays, form, count))
    return out, lse


def merge_backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    outs: Partials,
    lses: Partials,
    out: Tensor,
    lse: Tensor,
    grad_outs: Tensor | Sequence[Tensor | None],
    grad_lses: Tensor | Sequence[Tensor | None],
) -> None:
    """Writes the gradients of outs and lses to the tensors given, in one launch."""
    if not out.numel():
        for w, each in zip(merge_weights(namespace(out), list(lses)), grad_lses, strict=True):
            if each is not None:
                each.copy_(torch.zeros_like(w) if grad_lse is None else w * grad_lse)
        return
    count, rows = len(outs), lse.numel()
    grad_out = grad_out.contiguous()
    grad_lse = None if grad_lse is None else grad_lse.contiguous()
    targets = [_targets(grads, count) for grads in (grad_outs, grad_lses)]
    arrays = [_array(outs, count), _array(lses, count), *(_array(each, count) for each in targets)]
    kernel, form = _kernel(arrays, out, lse, count, (grad_out,), True)
    along = 0 if grad_lse is None else grad_lse.data_ptr()
    grid = -(-rows * form.lanes // THREADS)
    common = grad_out.data_ptr(), along, out.data_ptr(), rows, out.shape[-1] // form.width
    kernel(grid, *common, *_arguments(arrays, form, count))
    for grads, filled in zip((grad_outs, grad_lses), targets, strict=True):
        if filled is not None and filled is not grads:
            for wanted, each in zip(grads, filled, strict=True):
                if wanted is not None and each is not None and each is not wanted:
                    wanted.copy_(each)


def _kernel(
    arrays: list[_Array], out: Tensor, lse: Tensor, count: int, others: Iterable[Tensor], backward: bool
) -> tuple[Loaded, Shape]:
    """The kernel for these arrays; its loads are as wide as all of their rows are aligned."""
    bits = out.data_ptr()
    stacked = True
    for array in arrays:
        stacked = stacked and array.stride is not None
    for array in arrays[::2]:
        bits |= array.stride or 0
        for address in array.addresses:
            bits |= address
    for each in others:
        bits |= each.data_ptr()
    wide = lse.numel() >= _MANY_ROWS
    return _loaded(out.get_device(), out.dtype, lse.dtype, out.shape[-1], bits & 15, wide, count, stacked, backward)


@lru_cache(maxsize=4096)
def _loaded(device: int, *what: Any) -> tuple[Loaded, Shape]:
    shape = shape_of(*what)
    return load(device, source(shape), THREADS), shape


def _arguments(arrays: list[_Array], form: Shape, count: int) -> list[int]:
    found: list[int] = []
    if form.stacked:
        for array in arrays:
            assert array.stride is not None
            found += array.addresses[0], array.stride
        return [*found, count]
    for array in arrays:
        found += array.listed(count)
    return found


def _array(given: Tensor | Sequence[Tensor | None] | None, count: int) -> _Array:
    """Where partial results lie in memory, each contiguous: those that are not are copied."""
    if given is None:
        return _Array([0], 0, None)
    if isinstance(given, Tensor):
        if not (given.is_contiguous() or given[0].is_contiguous()):
            given = given.contiguous()
        return _Array([given.data_ptr()], given.stride(0) * given.element_size(), given)
    held = [each if each is None or each.is_contiguous() else each.contiguous() for each in given]
    addresses = [0 if each is None else each.data_ptr() for each in held]
    if count <= LISTED:
        return _Array(addresses, None, held)
    # More than a kernel takes one by one: stacked, if they do not lie evenly by themselves.
    step = addresses[1] - addresses[0]
    if all(b - a == step for a, b in pairwise(addresses)):
        return _Array(addresses[:1], step, held)
    return _array(torch.stack([each for each in held if each is not None]), count)


def _targets(grads: Tensor | Sequence[Tensor | None], count: int) -> Tensor | list[Tensor | None] | None:
    """What the kernel writes: the tensors themselves where they are contiguous and the kernel takes them one by one."""
    if isinstance(grads, Tensor):
        return grads if grads[0].is_contiguous() else torch.empty_like(grads, memory_format=torch.contiguous_format)
    first = next((each for each in grads if each is not None), None)
    if first is None:
        return [None] * count if count <= LISTED else None
    if count > LISTED:
        return torch.empty((count, *first.shape), dtype=first.dtype, device=first.device)
    return [
        each if each is None or each.is_contiguous() else torch.empty(each.shape, dtype=each.dtype, device=each.device)
        for each in grads
    ]

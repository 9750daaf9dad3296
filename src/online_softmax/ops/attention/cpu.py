"""Attention and the merging of partial results by the native kernels, for NumPy arrays and CPU tensors.

The matrix products are the array library's; what lies between them, one sweep over a tile of scores, is native.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._cpu import _native
from ..._cpu.arrays import argument, empty, threads_for
from . import cpu_steps, tiles
from .cpu_steps import contiguous
from .options import Forward, Options


def merge(outs: Sequence[Any], lses: Sequence[Any]) -> tuple[Any, Any]:
    """(out, lse) of partial results of the same queries."""
    out, lse = empty(outs[0], outs[0].shape, outs[0].dtype), empty(lses[0], lses[0].shape, lses[0].dtype)
    outs, lses = [contiguous(each) for each in outs], [contiguous(each) for each in lses]
    _native.merge_partials(_arguments(outs), _arguments(lses), argument(out), argument(lse), threads_for(out))
    return out, lse


def merge_backward(
    grad_out: Any,
    grad_lse: Any,
    outs: Sequence[Any],
    lses: Sequence[Any],
    out: Any,
    lse: Any,
    grad_outs: Sequence[Any],
    grad_lses: Sequence[Any],
) -> None:
    """Writes the gradients of outs and lses to the arrays given."""
    outs, lses = [contiguous(each) for each in outs], [contiguous(each) for each in lses]
    grad_outs, grad_lses = list(grad_outs), list(grad_lses)
    into_outs, into_lses = [_target(each) for each in grad_outs], [_target(each) for each in grad_lses]
    grad = contiguous(grad_out)
    along = None if grad_lse is None else contiguous(grad_lse)
    _native.merge_partials_backward(
        argument(grad),
        argument(along),
        _arguments(outs),
        _arguments(lses),
        argument(out),
        argument(lse),
        _arguments(into_outs),
        _arguments(into_lses),
        threads_for(out),
    )
    for filled, wanted in zip([*into_outs, *into_lses], [*grad_outs, *grad_lses], strict=True):
        if filled is not wanted:
            wanted[...] = filled


def attention(q: Any, k: Any, v: Any, mask: Any, options: Options) -> Forward:
    """softmax(scale · q kᵀ + mask) v, tile by tile."""
    with np.errstate(all="ignore"):
        return tiles.forward(cpu_steps, q, k, v, mask, options)


def attention_backward(
    grad_out: Any,
    grad_lse: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    result: Forward,
    options: Options,
    grad_mask: Any = None,
) -> tuple[Any, Any, Any]:
    """(dq, dk, dv), the scores recomputed tile by tile."""
    with np.errstate(all="ignore"):
        return tiles.backward(cpu_steps, grad_out, grad_lse, q, k, v, mask, result, options, grad_mask)


def _target(x: Any) -> Any:
    """x itself where the kernels can write to it, else a fresh array."""
    if x is None or x.is_contiguous():
        return x
    return empty(x, x.shape, x.dtype)


def _arguments(arrays: Sequence[Any]) -> list[Any]:
    return [argument(each) for each in arrays]

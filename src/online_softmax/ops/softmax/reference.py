"""softmax, log_softmax and logsumexp in array-API code: readable, right for every row, not fast.

Each row takes two sweeps over its blocks: its maximum, then the sum of exp(x − m) over all elements but one maximal
one.  That element contributes exactly 1, so log s is log1p of the rest, and small terms beside a dominant one are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..._arrays import Array, compute_dtype, namespace
from ...state import exp_against, row_maximum
from .._rows import blocks, maximum_and_rest, new_array, pieces, row_sum

_quiet = np.errstate(all="ignore")


@_quiet
def softmax(x: Array, axis: int, dtype: Any, out: Array | None = None) -> Array:
    """exp(x − m) / s along axis; a row with NaN or +inf, or of nothing but −inf, is NaN."""

    def probabilities(xp: Any, block: Array, m: Array, rest: Array) -> Array:
        return exp_against(xp, block, m[..., None]) / xp.where(xp.isinf(m), xp.nan, 1.0 + rest)[..., None]

    return _normalised(probabilities, x, axis, dtype, out)


@_quiet
def log_softmax(x: Array, axis: int, dtype: Any, out: Array | None = None) -> Array:
    """x − m − log s along axis; the same rows are NaN as in softmax."""

    def log_probabilities(xp: Any, block: Array, m: Array, rest: Array) -> Array:
        return (block - m[..., None]) - xp.where(xp.isinf(m), xp.nan, xp.log1p(rest))[..., None]

    return _normalised(log_probabilities, x, axis, dtype, out)


@_quiet
def logsumexp(x: Array, axis: int, dtype: Any) -> Array:
    """m + log s along axis, which is removed; −inf for a row of nothing, or of nothing but −inf."""
    xp = namespace(x)
    rows, compute = xp.moveaxis(x, axis, -1), compute_dtype(xp, x.dtype, dtype)
    parts = []
    for piece in pieces(rows):
        m, rest = maximum_and_rest(xp, rows[piece], compute)
        parts.append(m + xp.where(m == -xp.inf, xp.where(xp.isnan(rest), rest, 0.0), xp.log1p(rest)))
    if not parts:
        return xp.astype(row_maximum(xp, rows), dtype)
    return xp.astype(parts[0] if len(parts) == 1 else xp.concat(parts, axis=0), dtype)


@_quiet
def softmax_backward(grad: Array, y: Array, axis: int, dtype: Any, out: Array | None = None) -> Array:
    """y · (grad − Σ grad · y) along axis."""
    return _backward(lambda xp, g, y: g * y, lambda xp, g, y, total: y * (g - total), grad, y, axis, dtype, out)


@_quiet
def log_softmax_backward(grad: Array, y: Array, axis: int, dtype: Any, out: Array | None = None) -> Array:
    """grad − exp(y) · Σ grad along axis."""
    return _backward(lambda xp, g, y: g, lambda xp, g, y, total: g - xp.exp(y) * total, grad, y, axis, dtype, out)


@_quiet
def logsumexp_backward(grad: Array, x: Array, lse: Array, axis: int, out: Array | None = None) -> Array:
    """grad · exp(x − lse); at lse = +inf, grad / k on the k infinite elements; 0 for a row of nothing but −inf."""
    xp = namespace(x)
    rows, compute = xp.moveaxis(x, axis, -1), lse.dtype
    target = _target(xp, x, x.dtype, out)
    moved = None if target is None else xp.moveaxis(target, axis, -1)
    for piece, block_slices in _walk(rows, moved):
        part = rows[piece]
        infinite = xp.astype(part == xp.inf, compute)
        share = 1.0 / row_sum(xp, infinite)[..., None]
        scale = lse[piece][..., None]
        for block in block_slices:
            p = exp_against(xp, xp.astype(part[..., block], compute), scale)
            p = xp.where(scale == xp.inf, infinite[..., block] * xp.where(scale == xp.inf, share, 0.0), p)
            dx = xp.astype(xp.where(scale == -xp.inf, 0.0, p) * xp.astype(grad[piece], compute)[..., None], x.dtype)
            if moved is None:
                return xp.moveaxis(dx, -1, axis)
            moved[(*piece, block)] = dx
    return target


def _normalised(formula: Callable[..., Array], x: Array, axis: int, dtype: Any, out: Array | None) -> Array:
    """formula(block, m, rest) of every block of every row of x along axis, in a new array or in out."""
    xp = namespace(x)
    rows, compute = xp.moveaxis(x, axis, -1), compute_dtype(xp, x.dtype, dtype)
    target = _target(xp, x, dtype, out)
    moved = None if target is None else xp.moveaxis(target, axis, -1)
    for piece, block_slices in _walk(rows, moved):
        part = rows[piece]
        m, rest = maximum_and_rest(xp, part, compute)
        for block in block_slices:
            y = xp.astype(formula(xp, xp.astype(part[..., block], compute), m, rest), dtype)
            if moved is None:
                return xp.moveaxis(y, -1, axis)
            moved[(*piece, block)] = y
    return target


def _backward(
    term: Callable[..., Array],
    formula: Callable[..., Array],
    grad: Array,
    y: Array,
    axis: int,
    dtype: Any,
    out: Array | None,
) -> Array:
    """formula(grad, y, total) with total the row's sum of term(grad, y)."""
    xp = namespace(grad, y)
    compute = compute_dtype(xp, grad.dtype, y.dtype, dtype)
    grads, rows = xp.moveaxis(grad, axis, -1), xp.moveaxis(y, axis, -1)
    target = _target(xp, y, dtype, out)
    moved = None if target is None else xp.moveaxis(target, axis, -1)
    for piece, block_slices in _walk(rows, moved):
        total: Any = 0.0
        for block in blocks(rows.shape[-1]):
            g, part = xp.astype(grads[piece][..., block], compute), xp.astype(rows[piece][..., block], compute)
            total = total + row_sum(xp, term(xp, g, part))[..., None]
        for block in block_slices:
            g, part = xp.astype(grads[piece][..., block], compute), xp.astype(rows[piece][..., block], compute)
            dx = xp.astype(formula(xp, g, part, total), dtype)
            if moved is None:
                return xp.moveaxis(dx, -1, axis)
            moved[(*piece, block)] = dx
    return target


def _target(xp: Any, like: Array, dtype: Any, out: Array | None) -> Array | None:
    """The array to write to: out, a new one, or None where arrays cannot be written to."""
    return out if out is not None else new_array(xp, like.shape, dtype, like)


def _walk(rows: Array, target: Array | None) -> Any:
    """Pairs of a piece of rows and the blocks of a row; one pair of everything where there is nothing to write to."""
    if target is None:
        return [((...,), [slice(0, rows.shape[-1])])]
    return ((piece, blocks(rows.shape[-1])) for piece in pieces(rows))

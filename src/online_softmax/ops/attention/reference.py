"""Attention and the merging of partial results in array-API code: readable, right for every row, not fast.

A partial result (out, lse) is the state m = lse, s = 1, v = out; one that saw nothing (lse = −inf) has s = 0.  Merging
is the merge of those states.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..._arrays import Array, namespace
from ...state import State
from ...state import merge as merge_states
from . import steps, tiles
from .options import Forward, Options
from .steps import merge_weights

_quiet = np.errstate(all="ignore")


@_quiet
def merge(outs: Sequence[Array], lses: Sequence[Array]) -> tuple[Array, Array]:
    """(out, lse) of partial results of the same queries; lses, and the lse returned, are in the compute dtype."""
    xp = namespace(outs[0])
    compute = lses[0].dtype
    states = []
    for out, lse in zip(outs, lses, strict=True):
        missing, unknown = lse == -xp.inf, xp.isnan(lse)
        m = xp.where(unknown, -xp.inf, lse)
        s = xp.where(unknown, xp.nan, xp.where(missing, 0.0, xp.ones_like(lse)))
        # A partial that saw nothing is selected away even if its out holds NaN.
        states.append(State(m, s, xp.where(missing[..., None], 0.0, xp.astype(out, compute, copy=False))))
    whole = merge_states(*states)
    nan = xp.where(xp.isnan(whole.s), xp.nan, xp.zeros_like(whole.s))
    return xp.astype(whole.output() + nan[..., None], outs[0].dtype), whole.logsumexp()


def merge_backward(
    grad_out: Array,
    grad_lse: Array | None,
    outs: Sequence[Array],
    lses: Sequence[Array],
    out: Array,
    lse: Array,
    grad_outs: Sequence[Array | None],
    grad_lses: Sequence[Array | None],
) -> None:
    """Writes w · grad_out and w · (grad_out · (out_i − out) + grad_lse), w = exp(lse_i − lse), to the arrays given."""
    xp = namespace(out)
    grad, average = xp.astype(grad_out, lse.dtype), xp.astype(out, lse.dtype)
    shares = merge_weights(xp, lses)
    for i, w in enumerate(shares):
        d_out, d_lse = grad_outs[i], grad_lses[i]
        nothing = w == 0
        if d_out is not None:
            d_out[...] = xp.astype(xp.where(nothing[..., None], 0.0, w[..., None] * grad), d_out.dtype)
        if d_lse is not None:
            pull = xp.sum(grad * (xp.astype(outs[i], lse.dtype) - average), axis=-1)
            pull = pull if grad_lse is None else pull + grad_lse
            d_lse[...] = xp.astype(xp.where(nothing, 0.0, w * pull), d_lse.dtype)


@_quiet
def attention(q: Array, k: Array, v: Array, mask: Array | None, options: Options) -> Forward:
    """softmax(scale · q kᵀ + mask) v, tile by tile."""
    return tiles.forward(steps, q, k, v, mask, options)


@_quiet
def attention_backward(
    grad_out: Array,
    grad_lse: Array | None,
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    result: Forward,
    options: Options,
    grad_mask: Array | None = None,
) -> tuple[Array, Array, Array]:
    """(dq, dk, dv), the scores recomputed tile by tile."""
    return tiles.backward(steps, grad_out, grad_lse, q, k, v, mask, result, options, grad_mask)

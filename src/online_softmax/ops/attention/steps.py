"""The state (m, s, v) carried over one tile of scores, and the tile's gradient, in array-API code.

A tile holds the scores of some queries against some keys, shape (heads, group, queries, keys).  `first` is how many of
the tile's keys its first query may see when attention is causal, each further query one more; None: all see all.
Source: Dao et al. 2022, FlashAttention, section 3.1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..._arrays import Array, device, namespace
from ...state import exp_against, rescale_factor, row_maximum


def update(scores: Array, m: Array, s: Array, v: Array, first: int | None) -> tuple[Array, Array, Array, Array]:
    """(weights, m, s, v): exp(scores − m) for the new maximum m, and s and v so far brought to it.

    s counts the tile; v does not yet hold the tile's weights times values.
    """
    xp = namespace(scores)
    scores = _visible(xp, scores, first)
    top = xp.maximum(m, row_maximum(xp, scores))
    weights = exp_against(xp, scores, top[..., None])
    factor = rescale_factor(xp, m, top)
    s = s * factor + xp.sum(weights, axis=-1, dtype=s.dtype)
    # A part that weighs exactly nothing takes no part, even if its v holds NaN or inf.
    v = xp.where((factor == 0)[..., None], 0.0, v * factor[..., None])
    return weights, top, s, v


def gradient(
    scores: Array, grad_weights: Array, lse: Array, lse_low: Array, delta: Array, first: int | None
) -> tuple[Array, Array]:
    """(p, d scores): the probabilities exp((scores − lse) − lse_low), and p · (grad_weights − delta)."""
    xp = namespace(scores)
    scores = _visible(xp, scores, first)
    # A query that sees nothing has probabilities 0; one whose row is NaN or +inf has no gradient to give: NaN.
    steady = xp.where(xp.isfinite(lse), lse, xp.nan)[..., None]
    p = xp.exp((scores - steady) - lse_low[..., None])
    nothing = (scores == -xp.inf) | (lse == -xp.inf)[..., None] | (p < xp.finfo(p.dtype).smallest_normal)
    p = xp.where(nothing, 0.0, p)
    return p, xp.where(p == 0, 0.0, p * (grad_weights - delta[..., None]))


def run(work: Callable[[Any], Any], jobs: list[Any], like: Array, scores: int) -> list[Any]:
    """work(job) for each job; `scores` is how many scores they compute together, of arrays like `like`."""
    return [work(job) for job in jobs]


def merge_weights(xp: Any, lses: Sequence[Array]) -> list[Array]:
    """Each partial's share of the whole: 0 for one that saw nothing; at +inf the infinite ones share evenly."""
    m = functools.reduce(xp.maximum, (xp.where(xp.isnan(lse), -xp.inf, lse) for lse in lses))
    parts = [exp_against(xp, lse, m) for lse in lses]
    s = functools.reduce(xp.add, parts)
    return [part / xp.where(s == 0, 1.0, s) for part in parts]


def _visible(xp: Any, scores: Array, first: int | None) -> Array:
    if first is None:
        return scores
    where = device(scores)
    seen = first + xp.arange(scores.shape[-2], device=where)[:, None]
    return xp.where(xp.arange(scores.shape[-1], device=where) < seen, scores, -xp.inf)

"""Rows whose classes lie in parts: chunks of the vocabulary, or the shards of several processes."""

from __future__ import annotations

from typing import Any

from ..._arrays import Array, device


def merge_parts(xp: Any, lse: Array, low: Array) -> tuple[Array, Array]:
    """log Σ exp over the first axis and what rounding takes from it, from (parts, M) of both.

    The largest part counts expm1(low) beyond 1, so that what lies beyond a dominant class is not lost to rounding.  A
    NaN among the parts stays.
    """
    m = xp.max(lse, axis=0)
    largest = xp.arange(lse.shape[0], device=device(lse))[:, None] == xp.argmax(lse, axis=0)
    finite = abs(m) < xp.inf  # two launches where isfinite takes four
    reference = xp.where(finite, m, 0.0)
    # Not exp of a sum: at a distance of 40 that would lose low.
    parts = xp.exp(xp.where(finite, lse, 0.0) - reference)
    beyond = xp.expm1(low)
    log_s = xp.log1p(xp.sum(xp.where(largest, beyond, parts + parts * beyond), axis=0))
    whole = reference + log_s
    return xp.where(finite, whole, m), xp.where(finite, (reference - whole) + log_s, 0.0)

"""log |Σ b · exp(x)| with factors b of any sign, in array-API code that autograd can follow."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._arrays import Array, device, is_tensor
from ...state import row_maximum


def weighted_logsumexp(xp: Any, rows: Array, b: Array) -> tuple[Array, Array]:
    """log|Σ b · exp(x)| and the sum's sign over the last axis, in b's dtype; where b is 0 the element takes no part."""
    if is_tensor(rows):
        return _weighted(xp, rows, b)
    with np.errstate(all="ignore"):
        return _weighted(xp, rows, b)


def _weighted(xp: Any, rows: Array, b: Array) -> tuple[Array, Array]:
    x = xp.where(b == 0, -xp.inf, xp.astype(rows, b.dtype))
    m = row_maximum(xp, x.detach() if is_tensor(x) else x)
    infinite = xp.isinf(m)[..., None]
    at_most = xp.where(infinite, 0.0, m[..., None])
    # At an infinite maximum only infinite terms count, each with its b; elsewhere -inf adds exactly 0.
    counts = xp.where(xp.isinf(x), x > 0, ~infinite | xp.isinf(b))
    terms = xp.where(counts, b * xp.exp(xp.where(counts & ~xp.isinf(x) & ~infinite, x, at_most) - at_most), 0.0)
    terms = xp.where(xp.isnan(x) | xp.isnan(b) | ((x == -xp.inf) & xp.isinf(b)), xp.nan, terms)
    value, sign = _logarithm(xp, terms)
    # inf - inf is not zero but unknown.
    unknown = (m == xp.inf) & xp.any(terms > 0, axis=-1) & xp.any(terms < 0, axis=-1)
    return xp.where(unknown, xp.nan, value + xp.where(m == -xp.inf, 0.0, m)), xp.where(unknown, xp.nan, sign)


def _logarithm(xp: Any, terms: Array) -> tuple[Array, Array]:
    """log|Σ terms| and the sign; near |Σ| = 1 from all terms but the largest, so that small ones are kept."""
    total = xp.sum(terms, axis=-1, dtype=terms.dtype)
    if terms.shape[-1] == 0:
        return xp.full_like(total, -xp.inf), xp.zeros_like(total)
    first = xp.argmax(xp.abs(terms), axis=-1)[..., None]
    is_first = xp.arange(terms.shape[-1], device=device(terms)) == first
    lead = xp.sum(xp.where(is_first, terms, 0.0), axis=-1, dtype=terms.dtype)
    rest = xp.sum(xp.where(is_first, 0.0, terms), axis=-1, dtype=terms.dtype)
    sign = _sign(xp, total)
    nothing = total == 0
    size = xp.where(nothing, 1.0, xp.abs(total))
    # |lead + rest| - 1 = (|lead| - 1) + rest with lead's sign: exact when |lead| is 1.
    beyond = (xp.abs(lead) - 1.0) + rest * _sign(xp, lead)
    near = (xp.abs(beyond) < 0.5) & ~nothing
    value = xp.where(near, xp.log1p(xp.where(near, beyond, 0.0)), xp.log(size))
    return xp.where(nothing, -xp.inf, value), sign


def _sign(xp: Any, x: Array) -> Array:
    """-1, 0 or 1, NaN for NaN; xp.sign of array_api_compat waits for the device when a tensor is 0-d."""
    return xp.where(xp.isnan(x), x, xp.astype(x > 0, x.dtype) - xp.astype(x < 0, x.dtype))

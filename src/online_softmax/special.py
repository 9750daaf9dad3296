"""The functions of scipy.special with SciPy's own signatures and defaults (axis=None: the whole array).

A program changes its import and nothing else:

    from online_softmax.special import log_softmax, logsumexp, softmax
"""

from __future__ import annotations

from typing import Any

from ._arguments import answers_synonyms
from ._arrays import Array
from .ops import softmax as _softmax

__all__ = ["log_softmax", "logsumexp", "softmax"]


@answers_synonyms
def softmax(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """scipy.special.softmax: exp(x) / Σ exp(x) over axis, of any real array; see `online_softmax.softmax`."""
    return _softmax.softmax(x, axis=axis)


@answers_synonyms
def log_softmax(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """scipy.special.log_softmax: x − log Σ exp(x) over axis, nats; see `online_softmax.log_softmax`."""
    return _softmax.log_softmax(x, axis=axis)


@answers_synonyms
def logsumexp(
    a: Array,
    axis: int | tuple[int, ...] | None = None,
    b: Array | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
) -> Any:
    """scipy.special.logsumexp of real arrays: log Σ b exp(a) over axis, nats; see `online_softmax.logsumexp`.

    With return_sign, a pair (value, sign). Complex arrays are refused with a TypeError.
    """
    return _softmax.logsumexp(a, axis=axis, b=b, keepdims=keepdims, return_sign=return_sign)

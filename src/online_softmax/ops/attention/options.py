"""What an implementation of attention is told, and what it gives back."""

from __future__ import annotations

from typing import NamedTuple

from ..._arrays import Array


class Options(NamedTuple):
    """Everything about attention that is no array; checked by the public layer."""

    scale: float
    causal: bool = False
    block: int | None = None
    """Keys a tile; None: the implementation chooses."""


class Forward(NamedTuple):
    """What `attention` of an implementation returns for q (B, K, G, L, D): K key heads, G query heads for each."""

    out: Array
    """(B, K, G, L, Dv) in q's dtype."""
    lse: Array
    """(B, K, G, L) in the compute dtype; −inf for a query that sees no key."""
    lse_low: Array
    """What rounding took from lse, so that exp((x − lse) − lse_low) is right far from zero."""

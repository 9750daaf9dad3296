"""What the walks over rows and over the vocabulary are given, and what they give back."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

from ..._arrays import Array
from ..cross_entropy.options import Options


class Problem(NamedTuple):
    """Checked arguments; M rows, H features, V classes."""

    input: Array
    """(M, H), like the next two in the dtype that products are made in."""
    linear_weight: Array
    """(V, H)"""
    linear_bias: Array | None
    """(V,)"""
    target: Array
    """(M,) class indices or (M, V) probabilities."""
    weight: Array | None
    """(V,) in the compute dtype."""
    num_items: Any
    options: Options
    module: ModuleType
    """The implementation of cross-entropy that turns logits into loss and gradient."""
    chunk_rows: int | None
    memory: str
    """"fast", "least" or plan.BY_ROWS."""
    dtypes: Sequence[Any]
    """Of the gradients of input, linear_weight and linear_bias."""
    may_ignore: bool
    """Whether rows may be there that `ignore_index` leaves out, and that must spoil no product."""


class Wanted(NamedTuple):
    """Which gradients are asked for."""

    input: bool
    linear_weight: bool
    linear_bias: bool


class LinearCrossEntropyGrads(NamedTuple):
    """Gradients of `linear_cross_entropy`, each with the shape and dtype of the argument it is named for, or None."""

    input: Array | None
    linear_weight: Array | None
    linear_bias: Array | None

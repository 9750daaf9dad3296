"""What "mean" divides by, where the batch is taken in chunks and none can count it."""

from __future__ import annotations

from typing import Any

from ..._arrays import Array, compute_dtype, is_integer, namespace
from ..cross_entropy.terms import divide_by, never_zero
from .problem import Problem


def batch_divisors(problem: Problem) -> Array:
    """The (2,) divisors of the class term and the z term, from all rows."""
    _, linear_weight, _, target, weight, items, options, *_ = problem
    xp: Any = namespace(problem.input)
    compute, classes = compute_dtype(xp, problem.input.dtype), linear_weight.shape[0]
    counted = options.reduction == "mean" and items is None and weight is None and is_integer(target.dtype)
    if not counted or target.shape[0] >= _EXACT:
        return divide_by(xp, target, weight, classes, items, options, compute)
    # Kept rows are counted: exact in any order, so that a plain sum does, in a tenth of the launches.
    ignored = target == options.ignore_index
    known = (target >= 0) & (target < classes)
    kept = xp.sum(xp.astype(~ignored, compute))
    bad = xp.any(~(known | ignored))
    return never_zero(xp, xp.stack([xp.where(bad, xp.nan, kept), kept]))


_EXACT = 2**24

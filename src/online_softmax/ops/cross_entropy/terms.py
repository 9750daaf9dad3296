"""The parts of the loss's formula: scale and softcap, and how much mass a target puts on each class."""

from __future__ import annotations

from typing import Any

from ..._arrays import Array, device, is_integer
from .._rows import row_sum
from .options import Options


def capped(xp: Any, logits: Array, options: Options) -> Array:
    """softcap(scale · logits), with softcap(u) = c · tanh(u / c)."""
    x = logits if options.scale == 1.0 else options.scale * logits
    return x if options.softcap is None else options.softcap * xp.tanh(x / options.softcap)


def capped_slope(xp: Any, x: Array, options: Options) -> Array | float:
    """d capped / d logits, from the capped value x itself."""
    if options.softcap is None:
        return options.scale
    ratio = x / options.softcap
    return options.scale * ((1.0 - ratio) * (1.0 + ratio))


def row_kinds(xp: Any, target: Array, classes: int, ignore_index: int) -> tuple[Array, Array, Array]:
    """Of class-index targets: which are ignored, which out of range, and indices safe to look up."""
    ignored = target == ignore_index
    bad = ((target < 0) | (target >= classes)) & ~ignored
    return ignored, bad, xp.astype(xp.where(ignored | bad, 0, target), xp.int64)


def class_mass(
    xp: Any, target: Array, weight: Array | None, classes: int, options: Options, compute: Any
) -> tuple[Array, Array, Array]:
    """w_c q'_c as (rows, C), and which rows are ignored or have a target out of range."""
    smoothing, where = options.label_smoothing, device(target)
    if is_integer(target.dtype):
        ignored, bad, index = row_kinds(xp, target, classes, options.ignore_index)
        hot = xp.arange(classes, device=where) == index[..., None]
        q = xp.where(hot, xp.asarray(1.0, dtype=compute, device=where), 0.0)
    else:
        ignored = bad = xp.zeros(target.shape[:1], dtype=xp.bool, device=where)
        q = xp.astype(target, compute)
    mass = q if smoothing == 0.0 else (1.0 - smoothing) * q + smoothing / max(classes, 1)
    return (mass if weight is None else mass * weight), ignored, bad


def divide_by(
    xp: Any, target: Array, weight: Array | None, classes: int, num_items: Any, options: Options, compute: Any
) -> Array:
    """The (2,) divisors of the class term and the z term."""
    return never_zero(xp, _sums(xp, target, weight, classes, num_items, options, compute))


def never_zero(xp: Any, divisors: Array) -> Array:
    """NaN for 0: the loss of rows that are kept, but weigh nothing together, is NaN, as is their gradient."""
    return xp.where(divisors == 0, xp.nan, divisors)


def _sums(
    xp: Any, target: Array, weight: Array | None, classes: int, num_items: Any, options: Options, compute: Any
) -> Array:
    where = {"dtype": compute, "device": device(target)}
    if options.reduction != "mean":
        return xp.ones((2,), **where)
    if num_items is not None:
        return xp.broadcast_to(xp.asarray(num_items, **where), (2,))
    count = target.shape[0]
    if not is_integer(target.dtype):
        return xp.full((2,), float(count if classes else 0), **where)
    ignored, bad, index = row_kinds(xp, target, classes, options.ignore_index)
    kept = xp.where(ignored, 0.0, xp.ones((count,), **where))
    weights = kept if weight is None or not classes else kept * xp.take(weight, index)
    weights = xp.where(bad, xp.nan, weights)
    return xp.stack([row_sum(xp, weights), row_sum(xp, kept)])

"""One row's results over chunks of the vocabulary, merged into those of the whole row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..._arrays import Array
from ..cross_entropy.options import Forward, Options
from ..cross_entropy.parts import merge_parts
from ..cross_entropy.terms import capped
from .divisors import batch_divisors
from .shard import Shard, Targets


class Part(NamedTuple):
    """What the first sweep found in one chunk of classes."""

    shard: Shard
    start: int
    best: Any
    """(M,) the logit of the predicted class, only with aux."""
    result: Forward


def merged(parts: Sequence[Part], targets: Targets, aux: bool) -> Forward:
    """Loss and per-row results of the whole vocabulary."""
    xp, options, mass = targets.xp, targets.options, targets.masses
    divisors = batch_divisors(targets.problem)
    lses = xp.stack([part.result.lse for part in parts])
    lows = xp.stack([part.result.lse_low for part in parts])
    lse, lse_low = merge_parts(xp, lses, lows)
    losses = xp.stack([part.shard.shared(part.result.loss) for part in parts])
    # −log p of a chunk's classes is −log p among them, and how much the whole outweighs them.
    terms = losses + mass * ((lse - lses) + (lse_low - lows))
    terms = xp.where(mass == 0, 0.0, xp.where(lses == -xp.inf, xp.inf, terms))
    ce = xp.sum(terms, axis=0)
    if targets.own is not None:
        ce = ce + targets.own.loss(lse, lse_low)
    ce = xp.where(targets.ignored, 0.0, xp.where((abs(lse) < xp.inf) & ~targets.bad, ce, xp.nan))
    z = xp.where(targets.ignored, 0.0, options.z_loss * lse * lse) if options.z_loss else None
    loss = _reduced(xp, ce, z, divisors, options)
    if not aux:
        return Forward(loss, lse, lse_low, divisors, None, None, None, None)
    z = xp.zeros_like(lse) if z is None else z
    return Forward(loss, lse, lse_low, divisors, z, _predicted(xp, parts, options), _entropy(xp, parts, lse), None)


def _reduced(xp: Any, ce: Array, z: Array | None, divisors: Array, options: Options) -> Array:
    if options.reduction == "none":
        return ce if z is None else ce + z
    loss = xp.sum(ce) / divisors[0]
    return loss if z is None else loss + xp.sum(z) / divisors[1]


def _predicted(xp: Any, parts: Sequence[Part], options: Options) -> Array:
    """The first class with the largest logit; the first NaN where there is one."""
    best: Any = None
    index: Any = None
    for _, start, logit, result in parts:
        # As cross_entropy compares them: in the compute dtype, and equal where the softcap makes them so.
        value = capped(xp, xp.astype(logit, result.lse.dtype), options)
        predicted: Any = result.predicted
        if best is None:
            best, index = value, predicted
            continue
        better = (value > best) | (xp.isnan(value) & ~xp.isnan(best))
        best, index = xp.where(better, value, best), xp.where(better, start + predicted, index)
    return index


def _entropy(xp: Any, parts: Sequence[Part], lse: Array) -> Array:
    """Each chunk's entropy, and of choosing the chunk."""
    total = xp.zeros_like(lse)
    for *_, result in parts:
        gap = lse - result.lse
        share = xp.exp(-gap)
        total = total + xp.where(share == 0, 0.0, share * (result.entropy + gap))
    return xp.where(xp.isfinite(lse), total, xp.nan)

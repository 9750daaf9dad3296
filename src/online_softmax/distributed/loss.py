"""The loss of whole rows from what every process found, and the numbers that its gradient is made of.

The formulas are those of one device (ops/cross_entropy/reference.py), with sums over classes split into parts:
Σ_c w_c (lse − x_c) over the vocabulary = Σ_r [Σ_c w_c (lse_r − x_c) + W_r (lse − lse_r)], W_r a part's summed weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._arrays import describe, namespace
from ..ops.cross_entropy.arguments import Prepared, check_range
from ..ops.cross_entropy.options import Forward, Options
from ..ops.cross_entropy.terms import capped, capped_slope, never_zero
from .rows import Whole, merge_parts, weight_of
from .shards import Shard


class Terms(NamedTuple):
    """What is known of M rows before their logits are read; the same on every process but for the local part."""

    own: Tensor
    """(M,) whether this process has the target's class."""
    local_index: Tensor
    """(M,) the target's local index, or any valid one."""
    ignored: Tensor
    target_weight: Tensor
    """(M,) 0 where ignored, NaN where the target is out of range."""
    local_weight: Tensor | None
    local_total: Tensor
    total: Tensor
    """0-d, the summed weights of this process's classes and of the vocabulary."""
    divisors: Tensor
    vocab_size: int

    def rows(self, piece: slice) -> Terms:
        """The terms of some of the rows; what "mean" divides by stays that of all."""
        return self._replace(
            own=self.own[piece],
            local_index=self.local_index[piece],
            ignored=self.ignored[piece],
            target_weight=self.target_weight[piece],
        )

    def target_logit(self, logits: Tensor, options: Options) -> Tensor:
        """The target's logit after scale and softcap where this process has it, else −0.0, which adds nothing."""
        return torch.where(self.own, self._target(logits, options) + 0.0, -0.0)  # an owner's −0.0 becomes 0.0

    def _target(self, logits: Tensor, options: Options) -> Tensor:
        if logits.shape[1] == 0:
            return torch.zeros_like(self.target_weight)
        x = logits.gather(1, self.local_index[:, None])[:, 0].to(self.target_weight.dtype)
        found: Tensor = capped(namespace(x), x, options)
        return found

    def local_spread(self, part: Forward, classes: int) -> Tensor:
        """Σ_c w_c (lse_r − x_c) over the local classes; a class of −inf is infinitely far unless it weighs nothing."""
        far = torch.where(self.local_total == 0, 0.0, torch.inf)
        return torch.where(part.lse == -torch.inf, far, part.loss * classes)

    def local_extremes(self, logits: Tensor, part: Forward, options: Options, shard: Shard) -> list[Tensor]:
        """The largest local logit, the bits of its index in the vocabulary, and the entropy of the local part."""
        rows = part.lse.shape
        bits = torch.int64 if part.lse.dtype == torch.float64 else torch.int32
        if shard.classes == 0:
            beyond = torch.full(rows, torch.iinfo(bits).max, dtype=bits, device=logits.device)
            return [torch.full_like(part.lse, -torch.inf), beyond.view(part.lse.dtype), torch.zeros_like(part.lse)]
        assert part.predicted is not None
        assert part.entropy is not None
        x = logits.gather(1, part.predicted[:, None])[:, 0].to(part.lse.dtype)
        index = (part.predicted + shard.start).to(bits)
        return [capped(namespace(x), x, options), index.view(part.lse.dtype), part.entropy]

    def target_element(
        self, logits: Tensor, whole: Whole, options: Options, rest: Tensor, hot: Tensor, spread: Tensor
    ) -> Tensor:
        """The gradient of the target's own logit, in the compute dtype; (p − 1) hot keeps its digits near 0."""
        x = self._target(logits, options)
        steady = torch.where(torch.isfinite(whole.lse), whole.lse, torch.nan)
        log_p = (x - steady) - whole.low
        element = log_p.expm1() * hot + log_p.exp() * rest
        if options.label_smoothing > 0.0:
            weight = 1.0 if self.local_weight is None else self.target_weight
            element = element - spread * weight
        return element * capped_slope(namespace(x), x, options)


def terms_of(ready: Prepared, weight: Any, shard: Shard) -> Terms:
    """The terms of checked arguments; targets out of range raise on the CPU."""
    logits, target, options = ready.logits, ready.target.long(), ready.options
    compute = torch.float64 if logits.dtype == torch.float64 else torch.float32
    if logits.device.type == "cpu":
        check_range(target, shard.vocab_size, options.ignore_index, ready.shape)
    ignored = target == options.ignore_index
    bad = ((target < 0) | (target >= shard.vocab_size)) & ~ignored
    local = target - shard.start
    own = (local >= 0) & (local < shard.classes) & ~ignored & ~bad
    kept = torch.where(ignored, 0.0, torch.ones(target.shape, dtype=compute, device=logits.device))
    weights, local_weight = kept, None
    total, local_total = (kept.new_full((), float(count)) for count in (shard.vocab_size, shard.classes))
    if weight is not None:
        weight = _whole_weight(weight, logits, shard.vocab_size, compute)
        weights = kept * weight[torch.where(ignored | bad, 0, target)] if shard.vocab_size else kept
        local_weight = weight[shard.start : shard.start + shard.classes].contiguous()
        total, local_total = (
            weight.sum(dtype=torch.float64).to(compute),
            local_weight.sum(dtype=torch.float64).to(compute),
        )
    weights = torch.where(bad, torch.nan, weights)
    divisors = _divisors(weights, kept, ready)
    index = torch.where(own, local, 0)
    return Terms(own, index, ignored, weights, local_weight, local_total, total, divisors, shard.vocab_size)


def _whole_weight(weight: Any, logits: Tensor, vocab_size: int, compute: torch.dtype) -> Tensor:
    if not isinstance(weight, Tensor) or weight.device != logits.device:
        raise TypeError(f"weight is a {type(weight).__name__}; wanted a tensor on {logits.device}")
    if tuple(weight.shape) != (vocab_size,):
        raise ValueError(
            f"weight has {describe(weight)}; wanted shape ({vocab_size},), one number a class of the vocabulary"
        )
    return weight.detach().to(compute)


def _divisors(weights: Tensor, kept: Tensor, ready: Prepared) -> Tensor:
    if ready.options.reduction != "mean":
        return kept.new_ones(2)
    if ready.num_items is not None:
        divisors = torch.as_tensor(ready.num_items, dtype=kept.dtype, device=kept.device).broadcast_to(2)
    else:
        divisors = torch.stack([weights.sum(dtype=torch.float64), kept.sum(dtype=torch.float64)])
    found: Tensor = never_zero(torch, divisors.to(kept.dtype))
    return found


class Losses(NamedTuple):
    """Of M rows, from every process's columns; predicted and entropy only with aux."""

    whole: Whole
    ce: Tensor
    z_loss: Tensor
    predicted: Tensor | None
    entropy: Tensor | None


def row_losses(everybody: tuple[Tensor, ...], terms: Terms, options: Options, aux: bool) -> Losses:
    """The losses of whole rows from every process's columns (ranks, M): lse, lse_low, target logit, …."""
    lses, lows, target_logits, *rest = everybody
    shared = ((target_logits != 0) | ~target_logits.signbit()).sum(0) > 1
    if shared.device.type == "cpu" and shared.any():
        raise ValueError(
            "a target is among the classes of more than one process; wanted each process's own shard (debug=True tells "
            "where they overlap)"
        )
    whole = merge_parts(lses, lows)
    eps = options.label_smoothing
    mass = (1.0 - eps) * terms.target_weight
    distance = (whole.lse - target_logits.sum(0)) + whole.low
    ce = torch.where(mass == 0, 0.0, mass * distance)
    if eps > 0.0:
        spread, weights, *rest = rest
        gap = (whole.lse - lses) + (whole.low - lows)
        parts = torch.where((lses == -torch.inf) | (weights == 0), spread, spread + weights * gap)
        ce = ce + (eps / max(terms.vocab_size, 1)) * parts.sum(0)
    # A row without a finite log-sum-exp (NaN, +inf, nothing but −inf) has no loss; an ignored one has loss 0.
    ce = torch.where((torch.isfinite(whole.lse) | (terms.vocab_size == 0)) & ~shared, ce, torch.nan)
    ce = torch.where(terms.ignored, 0.0, torch.where(torch.isnan(terms.target_weight), torch.nan, ce))
    z = (
        torch.where(terms.ignored, 0.0, options.z_loss * whole.lse * whole.lse)
        if options.z_loss
        else torch.zeros_like(ce)
    )
    if not aux:
        return Losses(whole, ce, z, None, None)
    values, bits, entropies = rest
    share = weight_of(whole, lses, lows)
    surprise = entropies + ((whole.lse - lses) + (whole.low - lows))
    entropy = torch.where(share == 0, 0.0, share * surprise).sum(0)
    return Losses(whole, ce, z, _predicted(values, bits), entropy)


def reduced(ce: Tensor, z_loss: Tensor, terms: Terms, options: Options) -> Tensor:
    """The loss of all rows, as `reduction` says."""
    if options.reduction == "none":
        return ce + z_loss
    loss = ce.sum(dtype=torch.float64) / terms.divisors[0]
    if options.z_loss:
        loss = loss + z_loss.sum(dtype=torch.float64) / terms.divisors[1]
    return loss.to(ce.dtype)


def _predicted(values: Tensor, bits: Tensor) -> Tensor:
    """The lowest index of a maximum over all parts; a NaN, as the index of the first, comes before any number."""
    index = bits.view(torch.int64 if bits.dtype == torch.float64 else torch.int32).long()
    unknown = torch.isnan(values)
    best = torch.where(unknown.any(0), unknown, values == values.max(0).values)
    return torch.where(best, index, torch.iinfo(torch.int64).max).min(0).values


def shares_of(
    whole: Whole, terms: Terms, options: Options, grad_loss: Tensor | None, grad_lse: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Per row: the target's own mass, what else multiplies p, and what smoothing takes per unit of class weight."""
    eps, zero = options.label_smoothing, torch.zeros_like(whole.lse)
    class_share, z_share = (zero if grad_loss is None else grad_loss / divisor + zero for divisor in terms.divisors)
    hot = class_share * (1.0 - eps) * terms.target_weight
    spread = class_share * (eps / max(terms.vocab_size, 1))
    rest = spread * terms.total if eps else zero
    if options.z_loss:
        rest = rest + 2.0 * options.z_loss * whole.lse * z_share
    return hot, (rest if grad_lse is None else rest + grad_lse), spread

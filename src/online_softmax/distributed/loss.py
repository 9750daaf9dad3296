"""The loss of whole rows from what every process found, and the numbers that its gradient is made of.

The formulas are those of one device (ops/cross_entropy/reference.py), with sums over classes split into parts:
Σ_c w_c (lse − x_c) over the vocabulary = Σ_r [Σ_c w_c (lse_r − x_c) + W_r (lse − lse_r)], W_r a part's summed weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._arrays import namespace
from .._dispatch import implementation
from ..ops.cross_entropy.arguments import Prepared, check_range
from ..ops.cross_entropy.options import Forward, Options
from ..ops.cross_entropy.terms import capped, capped_slope, never_zero
from .rows import NO_LABEL, Whole, merge_parts, summarise, weight_of
from .shards import Shard
from .terms import Losses, whole_weight


class ArrayTerms(NamedTuple):
    """Terms in array operations; the same on every process but for the local part."""

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
    options: Options
    shard: Shard
    impl: str

    @classmethod
    def of(cls, ready: Prepared, weight: Any, shard: Shard, impl: str) -> ArrayTerms:
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
            weight = whole_weight(weight, logits, shard.vocab_size, compute)
            weights = kept * weight[torch.where(ignored | bad, 0, target)] if shard.vocab_size else kept
            local_weight = weight[shard.start : shard.start + shard.classes].contiguous()
            total, local_total = (each.sum(dtype=torch.float64).to(compute) for each in (weight, local_weight))
        weights = torch.where(bad, torch.nan, weights)
        divisors = _divisors(weights, kept, ready)
        index = torch.where(own, local, 0)
        totals = local_total, total
        return cls(own, index, ignored, weights, local_weight, *totals, divisors, options, shard, impl)

    @property
    def given(self) -> tuple[Tensor, ...]:
        """None of the caller's tensors is read again in backward."""
        return ()

    def rows(self, piece: slice) -> ArrayTerms:
        """The terms of some of the rows; what "mean" divides by stays that of all."""
        return self._replace(
            own=self.own[piece],
            local_index=self.local_index[piece],
            ignored=self.ignored[piece],
            target_weight=self.target_weight[piece],
        )

    def columns(self, logits: Tensor, aux: bool = False) -> Tensor:
        """(K, M): what this process finds out about its part of each row, in one read of the logits."""
        smooth = self.options.label_smoothing > 0.0
        labels = torch.where(self.own, self.local_index, NO_LABEL)
        part = summarise(logits, self.options, self.local_weight, self.impl, spread=smooth, aux=aux, labels=labels)
        distance = (part.lse - self._target(logits)) + part.lse_low if smooth else part.loss
        # Where it has the target's class, how far that is; else −0.0, which adds nothing.  An owner's −0.0 becomes 0.0.
        distance = torch.where(part.lse == -torch.inf, torch.inf, distance + 0.0)
        columns = [part.lse, part.lse_low, torch.where(self.own, distance, -0.0)]
        if smooth:
            columns += [self._local_spread(part), self.local_total.expand_as(part.lse)]
        if aux:
            columns += self._local_extremes(logits, part)
        return torch.stack(columns)

    def _target(self, logits: Tensor) -> Tensor:
        if logits.shape[1] == 0:
            return torch.zeros_like(self.target_weight)
        x = logits.gather(1, self.local_index[:, None])
        if self.options.softcap is not None:  # by the implementation's own tanh: one class is its log-sum-exp
            alone: Tensor = summarise(x, self.options, None, self.impl, spread=False, aux=False).lse
            return alone
        x = x[:, 0].to(self.target_weight.dtype)
        found: Tensor = capped(namespace(x), x, self.options)
        return found

    def _local_spread(self, part: Forward) -> Tensor:
        """Σ_c w_c (lse_r − x_c) over the local classes; a class of −inf is infinitely far unless it weighs nothing."""
        far = torch.where(self.local_total == 0, 0.0, torch.inf)
        return torch.where(part.lse == -torch.inf, far, part.loss * self.shard.classes)

    def _local_extremes(self, logits: Tensor, part: Forward) -> list[Tensor]:
        """The largest local logit, the bits of its index in the vocabulary, and the entropy of the local part."""
        rows = part.lse.shape
        bits = torch.int64 if part.lse.dtype == torch.float64 else torch.int32
        if self.shard.classes == 0:
            beyond = torch.full(rows, torch.iinfo(bits).max, dtype=bits, device=logits.device)
            return [torch.full_like(part.lse, -torch.inf), beyond.view(part.lse.dtype), torch.zeros_like(part.lse)]
        assert part.predicted is not None
        assert part.entropy is not None
        x = logits.gather(1, part.predicted[:, None])[:, 0].to(part.lse.dtype)
        index = (part.predicted + self.shard.start).to(bits)
        return [capped(namespace(x), x, self.options), index.view(part.lse.dtype), part.entropy]

    def losses(self, everybody: Tensor, aux: bool = False) -> Losses:
        """The losses of whole rows from every process's columns, (ranks, K, M)."""
        options, vocab_size = self.options, self.shard.vocab_size
        lses, lows, distances, *rest = everybody.unbind(1)
        here = (distances != 0) | ~distances.signbit()
        shared = here.sum(0) > 1
        if shared.device.type == "cpu" and shared.any():
            raise ValueError(
                "a target is among the classes of more than one process; wanted each process's own shard (debug=True "
                "tells where they overlap)"
            )
        whole = merge_parts(lses, lows)
        eps = options.label_smoothing
        mass = (1.0 - eps) * self.target_weight
        gap = (whole.lse - lses) + (whole.low - lows)
        # −log p of the class is −log p within its part, and how much the whole outweighs that.
        distance = torch.where(here, distances + torch.where(lses == -torch.inf, 0.0, gap), 0.0).sum(0)
        whole = whole._replace(distance=torch.where(torch.isfinite(whole.lse), distance, torch.nan))
        ce = torch.where(mass == 0, 0.0, mass * distance)
        if eps > 0.0:
            spread, weights, *rest = rest
            parts = torch.where((lses == -torch.inf) | (weights == 0), spread, spread + weights * gap)
            ce = ce + (eps / max(vocab_size, 1)) * parts.sum(0)
        # A row without a finite log-sum-exp (NaN, +inf, nothing but −inf) has no loss; an ignored one has loss 0.
        ce = torch.where((torch.isfinite(whole.lse) | (vocab_size == 0)) & ~shared, ce, torch.nan)
        ce = torch.where(self.ignored, 0.0, torch.where(torch.isnan(self.target_weight), torch.nan, ce))
        z = torch.zeros_like(ce)
        if options.z_loss:
            z = torch.where(self.ignored, 0.0, options.z_loss * whole.lse * whole.lse)
        if not aux:
            return Losses(whole, ce, z, None, None)
        values, bits, entropies = rest
        share = weight_of(whole, lses, lows)
        surprise = entropies + gap
        entropy = torch.where(share == 0, 0.0, share * surprise).sum(0)
        return Losses(whole, ce, z, _predicted(values, bits), entropy)

    def reduced(self, rows: Losses) -> Tensor:
        """The loss of all rows, as `reduction` says."""
        assert rows.z_loss is not None
        if self.options.reduction == "none":
            return rows.ce + rows.z_loss
        loss = rows.ce.sum(dtype=torch.float64) / self.divisors[0]
        if self.options.z_loss:
            loss = loss + rows.z_loss.sum(dtype=torch.float64) / self.divisors[1]
        return loss.to(rows.ce.dtype)

    def gradient(
        self, logits: Tensor, whole: Whole, grad_loss: Tensor | None, grad_lse: Tensor | None, into: Any
    ) -> Tensor:
        """The gradient of (M, C) local logits, in a new array (into=True) or in the one given, which may be theirs.

        In bulk: p times the row's pull, less the share that smoothing puts on every class. The target's own element,
        which only one process has, is formed anew in the compute dtype and rounded once.
        """
        classes = self.shard.classes
        if classes == 0:
            return torch.empty_like(logits) if into is True else into
        hot, rest, spread = self._shares(whole, grad_loss, grad_lse)
        element = self._target_element(logits, whole, rest, hot, spread)
        smooth = self.options.label_smoothing > 0.0
        local = Options(
            reduction="none",
            label_smoothing=1.0 if smooth else 0.0,
            scale=self.options.scale,
            softcap=self.options.softcap,
        )
        bulk = torch.where(self.ignored, local.ignore_index, 0 if smooth else local.ignore_index)
        # Smoothing of one over the local classes, times this, is the share of every class in the whole vocabulary.
        share = spread * classes
        pull = hot + rest - spread * self.local_total if smooth else hot + rest
        pull = torch.where(self.ignored, torch.zeros_like(pull) if grad_lse is None else grad_lse, pull)
        dx: Tensor = implementation("cross_entropy", logits, self.impl).backward(
            logits,
            bulk,
            self.local_weight if smooth else None,
            whole.lse,
            whole.low,
            torch.ones(2, dtype=whole.lse.dtype, device=logits.device),
            local,
            share,
            pull,
            into,
        )
        index = self.local_index[:, None]
        kept = dx.gather(1, index)
        return dx.scatter_(1, index, torch.where(self.own[:, None], element.to(dx.dtype)[:, None], kept))

    def _shares(self, whole: Whole, grad_loss: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Per row: the target's own mass, what else multiplies p, and what smoothing takes per unit of class weight."""
        eps, zero = self.options.label_smoothing, torch.zeros_like(whole.lse)
        class_share, z_share = (zero if grad_loss is None else grad_loss / divisor + zero for divisor in self.divisors)
        hot = class_share * (1.0 - eps) * self.target_weight
        spread = class_share * (eps / max(self.shard.vocab_size, 1))
        rest = spread * self.total if eps else zero
        if self.options.z_loss:
            rest = rest + 2.0 * self.options.z_loss * whole.lse * z_share
        return hot, (rest if grad_lse is None else rest + grad_lse), spread

    def _target_element(self, logits: Tensor, whole: Whole, rest: Tensor, hot: Tensor, spread: Tensor) -> Tensor:
        """The gradient of the target's own logit, in the compute dtype; (p − 1) hot keeps its digits near 0."""
        assert whole.distance is not None
        log_p = -whole.distance
        element = log_p.expm1() * hot + log_p.exp() * rest
        if self.options.label_smoothing > 0.0:
            weight = 1.0 if self.local_weight is None else self.target_weight
            element = element - spread * weight
        x = self._target(logits)
        return element * capped_slope(namespace(x), x, self.options)


def _divisors(weights: Tensor, kept: Tensor, ready: Prepared) -> Tensor:
    if ready.options.reduction != "mean":
        return kept.new_ones(2)
    if ready.num_items is not None:
        divisors = torch.as_tensor(ready.num_items, dtype=kept.dtype, device=kept.device).broadcast_to(2)
    else:
        divisors = torch.stack([weights.sum(dtype=torch.float64), kept.sum(dtype=torch.float64)])
    found: Tensor = never_zero(torch, divisors.to(kept.dtype))
    return found


def _predicted(values: Tensor, bits: Tensor) -> Tensor:
    """The lowest index of a maximum over all parts; a NaN, as the index of the first, comes before any number."""
    index = bits.view(torch.int64 if bits.dtype == torch.float64 else torch.int32).long()
    unknown = torch.isnan(values)
    best = torch.where(unknown.any(0), unknown, values == values.max(0).values)
    return torch.where(best, index, torch.iinfo(torch.int64).max).min(0).values

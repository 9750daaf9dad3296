"""Rows whose classes are sharded: what one process finds out about its part, and what all parts make together.

A part of a row is its log-sum-exp in two numbers, lse + low: the state (m, s) with m = lse and s = exp(low), which is
what every implementation returns, and keeps what rounding took from lse.  Parts merge as states do.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .._arrays import namespace
from .._dispatch import implementation
from ..ops.cross_entropy import parts
from ..ops.cross_entropy.options import Forward, Options

NO_LABEL = Options().ignore_index
"""Instead of a local class, in a row whose target is not among them."""


class Whole(NamedTuple):
    """Rows over all classes: log Σ exp = lse + low."""

    lse: Tensor
    low: Tensor
    distance: Tensor | None = None
    """What −log p of the target's class is, where backward asks for it: both then come from one and the same tanh."""

    def rows(self, piece: slice) -> Whole:
        """Some of them."""
        return Whole(*(None if each is None else each[piece] for each in self))  # type: ignore[arg-type]


def summarise(
    logits: Tensor,
    options: Options,
    weight: Tensor | None,
    impl: str,
    *,
    spread: bool,
    aux: bool,
    labels: Tensor | None = None,
) -> Forward:
    """One read of (M, C) local logits.

    lse and lse_low; with `spread`, loss is the mean over the classes of w_c (lse − x_c), else lse − x of `labels` (M,),
    if they are given: local classes, or NO_LABEL; with `aux`, predicted and entropy of this part alone.
    """
    rows, classes = logits.shape
    local = Options(
        reduction="none", label_smoothing=1.0 if spread else 0.0, scale=options.scale, softcap=options.softcap
    )
    # Every row is ignored where nothing but its log-sum-exp is wanted; a row that is not has some target.
    target = labels
    if target is None or spread:
        target = torch.full((rows,), 0 if spread else NO_LABEL, dtype=torch.int64, device=logits.device)
    if classes == 0:
        return _nothing(logits, target)
    result: Forward = implementation("cross_entropy", logits, impl).forward(
        logits, target, weight if spread else None, None, local, aux=aux
    )
    return result


def _nothing(logits: Tensor, target: Tensor) -> Forward:
    compute = torch.float64 if logits.dtype == torch.float64 else torch.float32
    zeros = torch.zeros(logits.shape[:1], dtype=compute, device=logits.device)
    lse = torch.full_like(zeros, -torch.inf)
    return Forward(zeros, lse, zeros, zeros.new_ones(2), zeros, torch.zeros_like(target), zeros, None)


def merge_parts(lse: Tensor, low: Tensor) -> Whole:
    """The whole rows from the parts along the first axis."""
    return Whole(*parts.merge_parts(namespace(lse), lse, low))


def weight_of(whole: Whole, lse: Tensor, low: Tensor) -> Tensor:
    """The share exp(part − whole) of parts in their rows; NaN in a row that has no finite log-sum-exp."""
    steady = torch.where(torch.isfinite(whole.lse), whole.lse, torch.nan)
    return (lse - steady).exp() * (torch.where(torch.isfinite(lse), low, 0.0) - whole.low).exp()

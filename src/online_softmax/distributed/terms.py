"""What the loss of sharded rows asks of an implementation, and which one takes a call."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from .._arrays import describe
from .._dispatch import implementation
from ..ops.cross_entropy.arguments import Prepared
from .rows import Whole
from .shards import Shard


class Losses(NamedTuple):
    """Of M rows, from every process's columns; predicted and entropy only with aux."""

    whole: Whole
    ce: Tensor
    z_loss: Tensor | None
    """Where it is not part of ce."""
    predicted: Tensor | None
    entropy: Tensor | None


class Terms(Protocol):
    """What is known of M rows before their logits are read, and what follows from it: ArrayTerms of loss.py,
    in array operations, and KernelTerms of kernels.py, in CUDA kernels."""

    @property
    def given(self) -> tuple[Tensor, ...]:
        """The caller's own tensors that backward reads again: saved, so that torch tells if they were written to."""

    def rows(self, piece: slice) -> Terms:
        """The terms of some of the rows; what "mean" divides by stays that of all."""

    def columns(self, logits: Tensor, aux: bool = False) -> Tensor:
        """(K, M): what this process finds out about its part of each row, in one read of the logits."""

    def losses(self, everybody: Tensor, aux: bool = False) -> Losses:
        """The losses of whole rows from every process's columns, (ranks, K, M)."""

    def reduced(self, rows: Losses) -> Tensor:
        """The loss of all rows, as `reduction` says."""

    def gradient(
        self, logits: Tensor, whole: Whole, grad_loss: Tensor | None, grad_lse: Tensor | None, into: Any
    ) -> Tensor:
        """The gradient of (M, C) local logits, in a new array (into=True) or in the one given, which may be theirs."""


def terms_of(ready: Prepared, weight: Any, shard: Shard, impl: str, aux: bool = False) -> Terms:
    """The terms of checked arguments; targets out of range raise on the CPU."""
    chosen = implementation("cross_entropy", ready.logits, impl)
    if chosen.__name__.endswith(".cuda") and not aux:
        from .kernels import KernelTerms

        return KernelTerms.of(ready, weight, shard, impl)
    from .loss import ArrayTerms

    return ArrayTerms.of(ready, weight, shard, impl)


def whole_weight(weight: Any, logits: Tensor, vocab_size: int, compute: torch.dtype) -> Tensor:
    """The class weights of the vocabulary, checked."""
    if not isinstance(weight, Tensor) or weight.device != logits.device:
        raise TypeError(f"weight is a {type(weight).__name__}; wanted a tensor on {logits.device}")
    if tuple(weight.shape) != (vocab_size,):
        raise ValueError(
            f"weight has {describe(weight)}; wanted shape ({vocab_size},), one number a class of the vocabulary"
        )
    return weight.detach().to(compute)

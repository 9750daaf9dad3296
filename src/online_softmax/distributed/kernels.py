"""The loss of sharded rows on CUDA tensors: three small launches of parts.cu and totals.cu between two reads of the
logits, where the array operations of loss.py would be a hundred."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._cuda.compile import Source
from .._cuda.launch import Loaded, load
from .._cuda.rows import LABELS, NAMES, compute_dtype
from ..ops.cross_entropy import cuda
from ..ops.cross_entropy.arguments import Prepared
from ..ops.cross_entropy.options import Options
from ..ops.cross_entropy.totals import Totals
from .rows import Whole, summarise
from .shards import Shard
from .terms import Losses, whole_weight

_THREADS = 128  # kThreads of parts.cu


@cache
def _kernel(entry: str, device: int, dtype: torch.dtype, labels: torch.dtype) -> Loaded:
    macros = (("INPUT", NAMES[dtype]), ("COMPUTE", NAMES[compute_dtype(dtype)]), ("LABEL", LABELS[labels]))
    return load(device, Source("distributed/parts.cu", entry, macros), _THREADS)


class KernelTerms(NamedTuple):
    """Terms whose methods are a launch or two each."""

    target: Tensor
    """(M,) class indices of the whole vocabulary."""
    weight: Tensor | None
    """Of the whole vocabulary."""
    local_weight: Tensor | None
    local_total: Tensor | None
    """0-d: of this process's classes the weights, and their sum, where smoothing needs them."""
    totals: Totals
    divisors: Tensor
    options: Options
    shard: Shard
    impl: str

    @classmethod
    def of(cls, ready: Prepared, weight: Any, shard: Shard, impl: str) -> KernelTerms:
        """The terms of checked arguments."""
        logits, target, options = ready.logits, ready.target, ready.options
        compute = compute_dtype(logits.dtype)
        whole, local, local_total = None, None, None
        if weight is not None:
            whole = whole_weight(weight, logits, shard.vocab_size, compute).contiguous()
            if options.label_smoothing:
                local = whole[shard.start : shard.start + shard.classes]
                local_total = local.sum(dtype=torch.float64).to(compute)
        totals = Totals(logits, target, None, ready.num_items, options, shard.vocab_size)
        divisors = torch.empty(2, dtype=compute, device=logits.device)
        totals.count(target, whole, ready.num_items, divisors)
        return cls(target, whole, local, local_total, totals, divisors, options, shard, impl)

    @property
    def given(self) -> tuple[Tensor, ...]:
        """The caller's own tensors that backward reads again."""
        return (self.target,) if self.weight is None else (self.target, self.weight)

    def rows(self, piece: slice) -> KernelTerms:
        """The terms of some of the rows; what "mean" divides by stays that of all."""
        return self._replace(target=self.target[piece])

    def _labels(self) -> tuple[int, int, int]:
        return self.target.data_ptr(), self.target.stride(0), self.target.shape[0]

    def _launch(self, entry: str, dtype: torch.dtype, *arguments: int | float) -> None:
        if rows := self.target.shape[0]:
            kernel = _kernel(entry, self.target.get_device(), dtype, self.target.dtype)
            kernel(-(-rows // _THREADS), *arguments)

    def columns(self, logits: Tensor, aux: bool = False) -> Tensor:
        """(K, M): what this process finds out about its part of each row, in one read of the logits; in place of the
        target's distance its logit."""
        assert not aux
        options, shard = self.options, self.shard
        smooth = options.label_smoothing != 0
        part = summarise(logits, options, self.local_weight, self.impl, spread=smooth, aux=False)
        columns = torch.empty((5 if smooth else 3, *part.lse.shape), dtype=part.lse.dtype, device=logits.device)
        of = shard.start, shard.vocab_size, options.ignore_index, float(options.scale), float(options.softcap or 0.0)
        found = part.lse.data_ptr(), part.lse_low.data_ptr(), part.loss.data_ptr() if smooth else 0
        total = 0 if self.local_total is None else self.local_total.data_ptr()
        given = logits.data_ptr(), *logits.stride(), shard.classes, *self._labels()
        self._launch("part_columns", logits.dtype, *given, *of, *found, total, columns.data_ptr())
        return columns

    def losses(self, everybody: Tensor, aux: bool = False) -> Losses:
        """The losses of whole rows from every process's columns, (ranks, K, M)."""
        assert not aux
        options, shard = self.options, self.shard
        out = torch.empty((3, everybody.shape[2]), dtype=everybody.dtype, device=everybody.device)
        loss, lse, low = out[0], out[1], out[2]
        reported_z = float(options.z_loss) if options.reduction == "none" else 0.0
        weight = 0 if self.weight is None else self.weight.data_ptr()
        given = everybody.data_ptr(), everybody.shape[0], everybody.shape[1], *self._labels()
        of = shard.vocab_size, options.ignore_index, weight, float(options.label_smoothing), reported_z
        results = loss.data_ptr(), lse.data_ptr(), low.data_ptr()
        self._launch("whole_rows", everybody.dtype, *given, *of, *results)
        return Losses(Whole(lse, low), loss.data, None, None, None)

    def reduced(self, rows: Losses) -> Tensor:
        """The loss of all rows, as `reduction` says."""
        if self.options.reduction == "none":
            return rows.ce
        loss = torch.empty((), dtype=rows.ce.dtype, device=rows.ce.device)
        self.totals.reduce(rows.ce, rows.whole.lse, self.target, self.divisors, loss)
        return loss

    def gradient(
        self, logits: Tensor, whole: Whole, grad_loss: Tensor | None, grad_lse: Tensor | None, into: Any
    ) -> Tensor:
        """The gradient of (M, C) local logits, in a new array (into=True) or in the one given, which may be theirs."""
        assert grad_loss is not None
        of = self.shard.start, self.shard.vocab_size
        rest = self.divisors, self.options, grad_loss, grad_lse, into, of
        return cuda.backward(logits, self.target, self.weight, whole.lse, whole.low, *rest)

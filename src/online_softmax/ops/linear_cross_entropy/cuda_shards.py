"""Launches of shards.cu: what shard.py, merged.py and pulls.py do between products, for tensors on a GPU and class
indices without weights or smoothing.  There every array operation would be a launch, a hundred and more of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from ..._cuda.compile import Source
from ..._cuda.launch import Loaded, load
from ..._cuda.rows import LABELS, NAMES, compute_dtype
from ..cross_entropy.options import Forward, Options, Saved
from .merged import Part
from .problem import Problem
from .pulls import Pulls
from .shard import NOT_HERE, Shard

_THREADS, _THREADS_OF_SUM = 128, 1024  # kThreads and kThreadsOfSum of shards.cu


@cache
def _kernel(entry: str, device: int, compute: torch.dtype, labels: torch.dtype, threads: int) -> Loaded:
    macros = (("COMPUTE", NAMES[compute]), ("LABEL", LABELS[labels]))
    return load(device, Source("ops/linear_cross_entropy/shards.cu", entry, macros), threads)


class CudaTargets:
    """Targets (see shard.py) whose work is one launch at a time."""

    own = None

    def __init__(self, problem: Problem, chunks: Sequence[slice]) -> None:
        target = problem.target
        self.problem, self.chunks, self.rows = problem, len(chunks), target.shape[0]
        self.compute = compute_dtype(problem.input.dtype)
        classes, ignored = problem.linear_weight.shape[0], problem.options.ignore_index
        labels = (target.data_ptr(), target.stride(0), self.rows)
        self.arguments = (*labels, classes, ignored, chunks[0].stop, self.chunks)
        local = self._table(self.chunks, torch.int64)
        self._launch("place_targets", local.data_ptr())
        given = problem.options
        options = Options(NOT_HERE, "none", 0.0, given.scale, given.softcap, 0.0)
        self.each = [Shard(local[i], None, options, 1.0) for i in range(self.chunks)]

    def _table(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(count, self.rows, dtype=dtype, device=self.problem.target.device)

    def _launch(self, entry: str, *arguments: int | float) -> None:
        target = self.problem.target
        threads, blocks = _THREADS, -(-self.rows // _THREADS)
        if entry == "sum_rows":
            threads, blocks = _THREADS_OF_SUM, 1
        kernel = _kernel(entry, target.get_device(), self.compute, target.dtype, threads)
        kernel(blocks, *self.arguments, *arguments)

    def merged(self, parts: Sequence[Part]) -> Forward:
        """Loss, lse and lse_low of the whole vocabulary."""
        options = self.problem.options
        results = [part.result for part in parts]
        losses = torch.stack([result.loss for result in results])
        lses = torch.stack([result.lse for result in results])
        lows = torch.stack([result.lse_low for result in results])
        out = self._table(3, self.compute)
        # .data: no view of what is saved for backward, so that the caller may write to the losses.
        loss, lse, lse_low = out[0].data, out[1], out[2]
        reported_z = float(options.z_loss) if options.reduction == "none" else 0.0
        tables = (losses.data_ptr(), lses.data_ptr(), lows.data_ptr())
        self._launch("merge_shards", *tables, reported_z, loss.data_ptr(), lse.data_ptr(), lse_low.data_ptr())
        divisors = loss.new_ones(2)
        if options.reduction != "none":
            loss = self._reduced(loss, lse, divisors)
        return Forward(loss, lse, lse_low, divisors, None, None, None, None)

    def _reduced(self, losses: torch.Tensor, lses: torch.Tensor, divisors: torch.Tensor) -> torch.Tensor:
        """The batch's loss; fills the divisors."""
        options, items = self.problem.options, self.problem.num_items
        if isinstance(items, torch.Tensor):
            items = items.detach().to(device=losses.device, dtype=self.compute)
        elif items is not None:
            items = losses.new_full((), float(items))
        loss = losses.new_empty(())
        given = 0 if items is None else items.data_ptr()
        results = (divisors.data_ptr(), loss.data_ptr())
        counted = int(options.reduction == "mean")
        z_loss = float(options.z_loss)
        self._launch("sum_rows", losses.data_ptr(), lses.data_ptr(), z_loss, given, counted, *results)
        return loss

    def pulls(self, saved: Saved, grad_loss: torch.Tensor, grad_lse: torch.Tensor | None) -> Pulls:
        """What the gradient of each chunk is made of."""
        lse, _, divisors = saved
        grad_loss = grad_loss.to(self.compute)
        grad_lse = None if grad_lse is None else grad_lse.to(self.compute)
        lse, divisors = lse.contiguous(), divisors.contiguous()
        rows, by_lse = self._table(2, self.compute), self._table(self.chunks, self.compute)
        incoming = (grad_loss.data_ptr(), grad_loss.stride(0) if grad_loss.ndim else 0)
        into_lse = (0, 0) if grad_lse is None else (grad_lse.data_ptr(), grad_lse.stride(0))
        z_loss = float(self.problem.options.z_loss)
        results = (rows[0].data_ptr(), rows[1].data_ptr(), by_lse.data_ptr())
        self._launch("pull_shards", lse.data_ptr(), divisors.data_ptr(), z_loss, *incoming, *into_lse, *results)
        return Pulls(rows[0], rows[1], None, by_lse)

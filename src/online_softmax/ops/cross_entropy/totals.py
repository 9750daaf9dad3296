"""What goes before and after the row kernel: the divisors of "mean", and the mean or sum of the rows' losses.

One array holds what a batch's launches tell each other, and what backward may need: room for a `Totals` (totals.cuh),
then the rows' losses, lse and lse_low.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from ..._cuda.compile import Source
from ..._cuda.launch import Loaded, load
from ..._cuda.rows import NAMES
from .options import Options

THREADS = 512  # kThreads of totals.cu
ONE_BLOCK = 16384
"""Rows that one block sums while several would still be starting."""
_FEW, _LONG = 4096, 4096
_LABELS = {torch.int32: "int", torch.int64: "long long"}


@cache
def kernel(entry: str, device: int, compute: torch.dtype, labels: torch.dtype) -> Loaded:
    """An entry point for losses and divisors in `compute`; a dtype that no label has stands for no labels."""
    macros = (("COMPUTE", NAMES[compute]), ("LABEL", _LABELS.get(labels, "long long")))
    return load(device, Source("ops/cross_entropy/totals.cu", entry, macros), THREADS, early=entry == "loss_rows")


def sums_itself(rows: int, classes: int) -> bool:
    """Whether the row kernel's last block sums the losses: while that is sooner done than another launch."""
    return rows <= _FEW or (rows <= ONE_BLOCK and classes >= _LONG)


class Count:
    """The launch of count_rows for a kind of batch; several blocks and a second launch for many rows."""

    __slots__ = ("_blocks", "_finish", "_kernel", "counts", "given", "labels", "numbers", "ready", "sums")

    def __init__(self, logits: torch.Tensor, target: torch.Tensor, num_items: Any, options: Options) -> None:
        rows, classes = logits.shape
        compute = torch.float64 if logits.dtype == torch.float64 else torch.float32
        self.labels = not target.is_floating_point()
        self.counts = self.labels and num_items is None and options.reduction == "mean"
        self.sums = options.reduction != "none" and sums_itself(rows, classes) and rows > 0 and classes > 0
        self.given = float(rows) if options.reduction == "mean" else 1.0
        self._blocks = min(-(-rows // ONE_BLOCK), 256) if self.counts and rows > ONE_BLOCK else 1
        self._kernel = kernel("count_rows", logits.get_device(), compute, target.dtype)
        self._finish = kernel("count_finish", logits.get_device(), compute, target.dtype) if self._blocks > 1 else None
        self.ready = self._kernel.ready(self._blocks)
        step = target.stride(0) if self.labels else 0
        self.numbers = step, rows, classes, options.ignore_index, float(options.z_loss)

    def __call__(
        self,
        target: torch.Tensor,
        weight: torch.Tensor | None,
        num_items: Any,
        packed: torch.Tensor,
        loss: torch.Tensor,
        losses: torch.Tensor,
    ) -> None:
        """Launch; `losses` (3, M) is the rest of `packed`."""
        given, number = 0, self.given
        if isinstance(num_items, torch.Tensor):
            num_items = num_items.detach().to(device=packed.device, dtype=packed.dtype)
            given = num_items.data_ptr()
        elif num_items is not None:
            number = float(num_items)
        partial = None
        if self._finish is not None:
            partial = torch.empty(self._blocks, 2, dtype=torch.float64, device=packed.device)
        at = 0 if partial is None else partial.data_ptr()
        lses = losses.data_ptr() + losses.stride(0) * losses.element_size()
        self._kernel(
            self._blocks,
            target.data_ptr() if self.counts else 0,
            0 if weight is None else weight.data_ptr(),
            given,
            at,
            packed.data_ptr(),
            loss.data_ptr() if self.sums else 0,
            losses.data_ptr(),
            lses,
            target.data_ptr() if self.labels else 0,
            number,
            *self.numbers,
        )
        if self._finish is not None:
            self._finish(1, at, self._blocks, packed.data_ptr())


def reduced_loss(packed: torch.Tensor, rows: int, target: torch.Tensor, loss: torch.Tensor) -> None:
    """Fills `loss` from the rows' losses that `packed` says the place of, where the row kernel did not."""
    device = packed.get_device()
    blocks, partial = max(1, min(-(-rows // ONE_BLOCK), 256)), None
    if blocks > 1:
        partial = torch.empty(blocks, 2, dtype=torch.float64, device=packed.device)
    at = 0 if partial is None else partial.data_ptr()
    head, loss_at = packed.data_ptr(), loss.data_ptr()
    kernel("loss_rows", device, packed.dtype, target.dtype)(blocks, at, head, loss_at)
    if blocks > 1:
        kernel("loss_finish", device, packed.dtype, target.dtype)(1, at, blocks, head, loss_at)

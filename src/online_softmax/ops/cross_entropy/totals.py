"""Launches of totals.cu: before the row kernel the divisors of "mean", after it the mean or sum of the rows' losses."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

from ..._cuda.compile import Source
from ..._cuda.launch import Loaded, load
from ..._cuda.rows import LABELS, NAMES
from .options import Options

_THREADS = 512  # kThreads of totals.cu
_ONE_BLOCK = 16384  # rows that one block sums while several would still be starting
_WEIGHING = 8  # kWeighing of totals.cu


@cache
def _kernel(entry: str, device: int, compute: torch.dtype, labels: torch.dtype) -> Loaded:
    """An entry point for losses and divisors in `compute`; a dtype that no label has stands for no labels."""
    macros = (("COMPUTE", NAMES[compute]), ("LABEL", LABELS.get(labels, "long long")))
    return load(device, Source("ops/cross_entropy/totals.cu", entry, macros), _THREADS, early=entry == "loss_rows")


class Weighing(NamedTuple):
    """What row kernels need of class weights besides themselves (weights.cuh), for one kind of logits and weights."""

    shift: int
    """Elements from one copy of the weights to the next; 0 where rows and weights are read without copies."""

    @classmethod
    def of(cls, logits: torch.Tensor, weight: torch.Tensor | None) -> Weighing | None:
        """None where nothing is needed."""
        if weight is None or weight.dtype != torch.float32:
            return None
        by_four = logits.data_ptr() % (4 * logits.element_size()) == 0 and logits.stride(0) % 4 == 0
        return cls(0 if by_four and weight.data_ptr() % 16 == 0 else -(-weight.shape[0] // 4) * 4)

    @property
    def size(self) -> int:
        """Numbers that count_rows writes."""
        return _WEIGHING + 4 * self.shift

    def at(self, weight: int, weighed: int) -> tuple[int, int, int]:
        """The addresses that row kernels take class weights from, and their sums, and the shift."""
        return weighed + 4 * _WEIGHING if self.shift else weight, weighed, self.shift


class Totals:
    """Both for batches of one kind; with several blocks, and a launch to finish each, for many rows."""

    __slots__ = ("_device", "_dtypes", "blocks", "counts", "given", "labels", "to_count", "to_sum", "weighing")

    def __init__(
        self,
        logits: torch.Tensor,
        target: torch.Tensor,
        weight: torch.Tensor | None,
        num_items: Any,
        options: Options,
        all_classes: int | None = None,
    ) -> None:
        """`all_classes`: of labels and weights, if there are more than logits has."""
        rows, classes = logits.shape[0], logits.shape[1] if all_classes is None else all_classes
        compute = torch.float64 if logits.dtype == torch.float64 else torch.float32
        self._device, self._dtypes = logits.get_device(), (compute, target.dtype)
        self.labels = not target.is_floating_point()
        self.counts = self.labels and num_items is None and options.reduction == "mean"
        self.given = float(rows) if options.reduction == "mean" else 1.0
        self.blocks = max(1, min(-(-rows // _ONE_BLOCK), 256))
        step = target.stride(0) if self.labels else 0
        self.weighing = Weighing.of(logits, weight) if self.labels and options.label_smoothing else None
        shift = 0 if self.weighing is None else self.weighing.shift
        self.to_count = step, rows, classes, options.ignore_index, self.blocks if self.counts else 1, shift
        self.to_sum = step, rows, options.ignore_index, float(options.z_loss)

    def kernel(self, entry: str) -> Loaded:
        """An entry point of totals.cu for such a batch."""
        return _kernel(entry, self._device, *self._dtypes)

    def _partial(self, blocks: int, like: torch.Tensor) -> torch.Tensor | None:
        """Where several blocks leave their pairs of sums."""
        return torch.empty(blocks, 2, dtype=torch.float64, device=like.device) if blocks > 1 else None

    def counting(self) -> int:
        """Blocks of count_rows."""
        return (self.blocks if self.counts else 1) + (0 if self.weighing is None else _WEIGHING)

    def count(
        self, target: torch.Tensor, weight: torch.Tensor | None, num_items: Any, divisors: torch.Tensor
    ) -> torch.Tensor | None:
        """Fills the divisors (2,): by what "mean" divides class terms, and z terms.  Returns what has been weighed."""
        given, number = 0, self.given
        if isinstance(num_items, torch.Tensor):
            num_items = num_items.detach().to(device=divisors.device, dtype=divisors.dtype)
            given = num_items.data_ptr()
        elif num_items is not None:
            number = float(num_items)
        blocks = self.blocks if self.counts else 1
        partial = self._partial(blocks, divisors)
        at = 0 if partial is None else partial.data_ptr()
        labels, weights = target.data_ptr() if self.counts else 0, 0 if weight is None else weight.data_ptr()
        weighed = None
        if self.weighing is not None:
            weighed = torch.empty(self.weighing.size, dtype=divisors.dtype, device=divisors.device)
        results = at, divisors.data_ptr(), 0 if weighed is None else weighed.data_ptr()
        self.kernel("count_rows")(self.counting(), labels, weights, given, *results, number, *self.to_count)
        if blocks > 1:
            self.kernel("count_finish")(1, at, blocks, divisors.data_ptr())
        return weighed

    def weighed_at(self, weight: torch.Tensor | None, weighed: torch.Tensor | None) -> tuple[int, int, int] | None:
        """For kernels.run, what `count` has weighed."""
        if self.weighing is None or weight is None or weighed is None:
            return None
        return self.weighing.at(weight.data_ptr(), weighed.data_ptr())

    def reduce(
        self,
        losses: torch.Tensor,
        lses: torch.Tensor,
        target: torch.Tensor,
        divisors: torch.Tensor,
        loss: torch.Tensor,
    ) -> None:
        """Fills the 0-d loss from those of the rows and from their lse, each (M,) and contiguous."""
        partial = self._partial(self.blocks, divisors)
        at = 0 if partial is None else partial.data_ptr()
        rows = losses.data_ptr(), lses.data_ptr(), target.data_ptr() if self.labels else 0
        results = divisors.data_ptr(), loss.data_ptr()
        self.kernel("loss_rows")(self.blocks, *rows, at, *results, *self.to_sum)
        if self.blocks > 1:
            self.kernel("loss_finish")(1, at, self.blocks, self.to_sum[-1], *results)

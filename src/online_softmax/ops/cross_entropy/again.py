"""A call of forward like an earlier one: three launches and three allocations, and no question that was answered then.

Of batches that one block sums, for "mean" and "sum" without aux.
"""

from __future__ import annotations

from typing import Any

import torch
from cuda.core import Stream

from ..._cuda.launch import launch_on
from ..._cuda.memory import empty
from . import kernels
from .options import HEAD_BYTES, Packed
from .totals import Totals


class Call:
    """What depends on a call's key and not on its pointers."""

    __slots__ = ("_rows", "_sizes", "_to_count", "_to_sum", "_weighing", "device")

    def __init__(self, logits: torch.Tensor, packed: torch.Tensor, gradient: bool, totals: Totals, rows: kernels.Again):
        self.device = logits.get_device()
        self._rows = rows
        lines, classes = logits.shape
        wanted = ((lines, classes), (classes, 1), logits.dtype) if gradient else None
        self._sizes = wanted, tuple(packed.shape), packed.dtype, lines * packed.element_size()
        ready = totals.kernel("count_rows").ready(totals.counting())
        self._to_count = ready, totals.counts, totals.given, totals.to_count
        self._weighing = totals.weighing
        self._to_sum = totals.kernel("loss_rows").ready(1), totals.labels, totals.to_sum

    def __call__(
        self, stream: Stream, logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, num_items: Any
    ) -> Packed:
        """Launch on the device's current stream, which is the one given.  `num_items` is a number or None."""
        device = self.device
        wanted, shape, dtype, plane = self._sizes
        ready, counts, number, to_count = self._to_count
        gradient, gradient_at = None, 0
        if wanted is not None:
            gradient = empty(*wanted, device)
            gradient_at = gradient.data_ptr()
        packed, loss = empty(shape, (1,), dtype, device), empty((), (), dtype, device)
        divisors, target_at = packed.data_ptr(), target.data_ptr()
        losses = divisors + HEAD_BYTES
        weight_at = 0 if weight is None else weight.data_ptr()
        if num_items is not None:
            number = float(num_items)
        weights_at, weighed_at, shift, weighing = weight_at, 0, 0, self._weighing
        if weighing is not None:
            weighed = empty((weighing.size,), (1,), dtype, device)
            weights_at, weighed_at, shift = weighing.at(weight_at, weighed.data_ptr())
        # As Totals.count, kernels.run and Totals.reduce do.
        labels_at = target_at if counts else 0
        launch_on(stream, *ready, labels_at, weight_at, 0, 0, divisors, weighed_at, number, *to_count)
        at = logits.data_ptr(), gradient_at, target_at, weights_at, divisors
        self._rows(stream, *at, losses, plane, weighed_at, shift)
        ready, labels, to_sum = self._to_sum
        labels_at = target_at if labels else 0
        launch_on(stream, *ready, losses, losses + plane, labels_at, 0, divisors, loss.data_ptr(), *to_sum)
        return Packed(loss, packed, gradient)

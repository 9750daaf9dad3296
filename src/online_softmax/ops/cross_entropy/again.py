"""A call of forward like an earlier one: two launches and three allocations, and no question that was answered then.

Of batches whose row kernel sums the losses itself, for "mean" and "sum" without aux.
"""

from __future__ import annotations

from typing import Any

import torch
from cuda.core import Stream

from ..._cuda.launch import launch_on
from ..._cuda.memory import empty
from . import kernels
from .options import HEAD_BYTES, Packed
from .totals import Count


class Call:
    """What depends on a call's key and not on its pointers."""

    __slots__ = ("_count", "_gradient", "_packed", "_places", "_rows", "device")

    def __init__(self, logits: torch.Tensor, packed: torch.Tensor, gradient: bool, count: Count, rows: kernels.Again):
        self.device = logits.get_device()
        self._count, self._rows = count, rows
        lines, classes = logits.shape
        self._gradient = ((lines, classes), (classes, 1), logits.dtype) if gradient else None
        self._packed = tuple(packed.shape), packed.dtype
        self._places = lines * packed.element_size()

    def __call__(
        self, stream: Stream, logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, num_items: Any
    ) -> Packed:
        """Launch on the device's current stream, which is the one given."""
        device, count, plane, (shape, dtype) = self.device, self._count, self._places, self._packed
        gradient = None if self._gradient is None else empty(*self._gradient, device)
        packed, loss = empty(shape, (1,), dtype, device), empty((), (), dtype, device)
        head, labels = packed.data_ptr(), target.data_ptr()
        weights = 0 if weight is None else weight.data_ptr()
        losses = head + HEAD_BYTES
        known = count.arguments(labels, weights, num_items, 0, head, loss.data_ptr(), losses, plane)
        launch_on(stream, *count.ready, *known)
        at = 0 if gradient is None else gradient.data_ptr()
        self._rows(stream, logits.data_ptr(), at, labels, weights, head, losses, plane)
        return Packed(loss, packed, gradient)

"""A call of forward like an earlier one: three launches and three allocations, and no question that was answered then.

Of a batch that one block can count, for "mean" and "sum" without aux.
"""

from __future__ import annotations

from typing import Any

import torch
from cuda.core import Stream

from ..._cuda.launch import launch_on
from ..._cuda.memory import empty
from ..._cuda.rows import compute_dtype
from . import kernels, totals
from .options import Options, Packed


class Call:
    """What depends on a call's key and not on its pointers."""

    __slots__ = ("_count", "_loss", "_numbers", "_rows", "_sizes", "device")

    def __init__(
        self,
        logits: torch.Tensor,
        target: torch.Tensor,
        num_items: Any,
        options: Options,
        gradient: bool,
        rows: kernels.Again,
    ) -> None:
        self.device = logits.get_device()
        self._rows = rows
        compute, count, classes = compute_dtype(logits.dtype), *logits.shape
        labels = not target.is_floating_point()
        counted = labels and num_items is None and options.reduction == "mean"
        ready = (
            totals.kernel(entry, self.device, compute, target.dtype).ready(1) for entry in ("count_rows", "loss_rows")
        )
        self._count, self._loss = ready
        wanted = ((count, classes), (classes, 1)) if gradient else None
        step = target.stride(0) if labels else 0
        given = 1.0 if options.reduction == "sum" else float(count)
        self._sizes = compute, count, count * compute.itemsize, counted, labels, wanted
        self._numbers = (
            given,
            (step, count, classes, options.ignore_index),
            (step, count, options.ignore_index, float(options.z_loss)),
        )

    def __call__(
        self, stream: Stream, logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, num_items: Any
    ) -> Packed:
        """Launch on the device's current stream, which is the one given."""
        compute, rows, plane, counted, labels, wanted = self._sizes
        given, to_count, to_sum = self._numbers
        gradient = empty(*wanted, logits.dtype, self.device) if wanted else None
        packed = empty((3 * rows + 2,), (1,), compute, self.device)
        loss = empty((), (), compute, self.device)
        at, labels_at = packed.data_ptr(), target.data_ptr()
        weights_at = 0 if weight is None else weight.data_ptr()
        divisors = at + 3 * plane
        if num_items is not None:
            given = float(num_items)
        launch_on(stream, *self._count, labels_at if counted else 0, weights_at, 0, divisors, given, *to_count)
        self._rows(
            stream, logits.data_ptr(), 0 if gradient is None else gradient.data_ptr(),
            labels_at, weights_at, divisors, at, plane,
        )  # fmt: skip
        loss_at = loss.data_ptr()
        launch_on(stream, *self._loss, at, at + plane, labels_at if labels else 0, 0, divisors, loss_at, *to_sum)
        return Packed(loss, packed, gradient)

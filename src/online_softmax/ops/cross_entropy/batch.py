"""A small batch in one launch, batch.cu, with three allocations: little else costs a call on a few numbers any time."""

from __future__ import annotations

from typing import Any

import torch
from cuda.core import Stream

from ..._cuda.launch import launch_on, load
from ..._cuda.memory import empty
from ..._cuda.rows import compute_dtype
from . import kernels, numbers
from .options import HEAD_BYTES, Options, Packed
from .switches import batch as plan


def fitting(
    logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, options: Options, gradient: bool
) -> Batch | None:
    """For calls like this one; None where one block cannot take all rows, or something else is asked for."""
    rows, classes = logits.shape
    side_by_side = classes == 1 or (classes > 1 and logits.stride(1) == 1)
    if options.reduction == "none" or not side_by_side or target.is_floating_point():
        return None
    if gradient and logits.dtype == torch.float64:
        return None
    return Batch(logits, target, weight, options, gradient) if plan(rows, kernels.words_of(logits)) else None


class Batch:
    """What depends on a call's key and not on its pointers."""

    __slots__ = ("_divisor", "_launch", "_sizes", "device")

    def __init__(
        self, logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, options: Options, gradient: bool
    ):
        rows, classes = logits.shape
        compute = compute_dtype(logits.dtype)
        chosen = plan(rows, kernels.words_of(logits))
        assert chosen is not None
        switches = kernels.switches_of(target, weight, options, aux=False, gradient=gradient)
        (source,) = chosen.sources(logits.dtype, switches)
        self.device = logits.get_device()
        kernel = load(self.device, source, chosen.shape.threads)
        wanted = ((rows, classes), (classes, 1), logits.dtype) if gradient else None
        packed = HEAD_BYTES // compute.itemsize + 3 * rows
        self._sizes = wanted, (packed,), compute
        given = options.ignore_index, *numbers.factors(options), float(options.z_loss)
        threads = -(-rows * chosen.shape.group // 32) * 32  # no more than have rows
        self._launch = kernel.ready(1, threads), (rows, classes, logits.stride(0)), target.stride(0), given
        self._divisor = 0.0 if options.reduction == "mean" else 1.0  # 0: the labels are counted

    def __call__(
        self, stream: Stream, logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, num_items: Any
    ) -> Packed:
        """Launch on the device's current stream, which is the one given.  `num_items` is a number or None."""
        device = self.device
        wanted, shape, dtype = self._sizes
        ready, sizes, step, given = self._launch
        gradient, gradient_at = None, 0
        if wanted is not None:
            gradient = empty(*wanted, device)
            gradient_at = gradient.data_ptr()
        packed, loss = empty(shape, (1,), dtype, device), empty((), (), dtype, device)
        labels = target.data_ptr(), step, 0 if weight is None else weight.data_ptr()
        divisor = self._divisor if num_items is None else float(num_items)
        results = packed.data_ptr(), loss.data_ptr()
        launch_on(stream, *ready, logits.data_ptr(), gradient_at, *sizes, *labels, *given, divisor, *results)
        return Packed(loss, packed, gradient)

"""Launches of totals.cu: the divisors of "mean", and the mean or sum of the rows' losses."""

from __future__ import annotations

from functools import cache

import torch

from ..._cuda.compile import Source
from ..._cuda.launch import Loaded, load
from ..._cuda.rows import NAMES

_THREADS = 1024
ONE_BLOCK = 16 * _THREADS
"""Rows that one block sums while several would still be starting."""
_LABELS = {torch.int32: "int", torch.int64: "long long"}


@cache
def kernel(entry: str, device: int, compute: torch.dtype, labels: torch.dtype) -> Loaded:
    """An entry point for losses and divisors in `compute`; a dtype that no label has stands for no labels."""
    macros = (("COMPUTE", NAMES[compute]), ("LABEL", _LABELS.get(labels, "long long")))
    return load(device, Source("ops/cross_entropy/totals.cu", entry, macros), _THREADS, early=entry == "loss_rows")


def _partial(rows: int, device: torch.device) -> tuple[int, torch.Tensor | None]:
    """Blocks, and where each leaves its pair of sums when there are several."""
    if rows <= ONE_BLOCK:
        return 1, None
    blocks = min(-(-rows // ONE_BLOCK), 256)
    return blocks, torch.empty(blocks, 2, dtype=torch.float64, device=device)


def given(number: float, like: torch.Tensor, compute: torch.dtype) -> torch.Tensor:
    """(2,): a number that is known, twice."""
    result = torch.empty(2, dtype=compute, device=like.device)
    kernel("count_rows", like.get_device(), compute, compute)(1, 0, 0, 0, result.data_ptr(), number, 0, 0, 0, 0)
    return result


def divisors(
    target: torch.Tensor, classes: int, weight: torch.Tensor | None, ignore_index: int, compute: torch.dtype
) -> torch.Tensor:
    """(2,): the sum of the kept rows' weights, and their number."""
    device, rows = target.get_device(), target.shape[0]
    result = torch.empty(2, dtype=compute, device=target.device)
    blocks, partial = _partial(rows, target.device)
    at = 0 if partial is None else partial.data_ptr()
    weights = 0 if weight is None else weight.data_ptr()
    kernel("count_rows", device, compute, target.dtype)(
        blocks, target.data_ptr(), weights, at, result.data_ptr(), 0.0, target.stride(0), rows, classes, ignore_index
    )
    if blocks > 1:
        kernel("count_finish", device, compute, target.dtype)(1, at, blocks, result.data_ptr())
    return result


def reduced_loss(
    losses: torch.Tensor,
    lses: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    z_loss: float,
    by: torch.Tensor,
) -> torch.Tensor:
    """0-d: the rows' losses (without z-loss) over by[0], and z_loss times the kept rows' lse^2 over by[1]."""
    device, rows = losses.get_device(), losses.shape[0]
    result = torch.empty_strided((), (), dtype=losses.dtype, device=losses.device)  # in half the time of torch.empty
    blocks, partial = _partial(rows, losses.device)
    at = 0 if partial is None else partial.data_ptr()
    labels, stride = (0, 0) if target.is_floating_point() else (target.data_ptr(), target.stride(0))
    pointers = (losses.data_ptr(), lses.data_ptr(), labels, at, by.data_ptr(), result.data_ptr())
    kernel("loss_rows", device, losses.dtype, target.dtype)(
        blocks, *pointers, stride, rows, ignore_index, float(z_loss)
    )
    if blocks > 1:
        kernel("loss_finish", device, losses.dtype, target.dtype)(
            1, at, blocks, float(z_loss), by.data_ptr(), result.data_ptr()
        )
    return result

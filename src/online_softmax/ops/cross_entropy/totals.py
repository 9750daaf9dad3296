"""Launches of totals.cu: the divisors of "mean", and the mean or sum of the rows' losses."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from ..._cuda.compile import Source
from ..._cuda.launch import Loaded, load
from ..._cuda.rows import NAMES

_THREADS = 1024
_ONE_BLOCK = 16 * _THREADS  # rows that one block sums while several would still be starting
_LABELS = {torch.int32: "int", torch.int64: "long long", None: "long long"}


@cache
def _kernel(entry: str, device: int, compute: torch.dtype, labels: torch.dtype | None) -> Loaded:
    macros = (("COMPUTE", NAMES[compute]), ("LABEL", _LABELS[labels]))
    return load(device, Source("ops/cross_entropy/totals.cu", entry, macros), _THREADS)


def _partial(rows: int, device: torch.device) -> tuple[int, torch.Tensor | None]:
    """Blocks, and where each leaves its pair of sums when there are several."""
    if rows <= _ONE_BLOCK:
        return 1, None
    blocks = min(-(-rows // _ONE_BLOCK), 256)
    return blocks, torch.empty(blocks, 2, dtype=torch.float64, device=device)


def divisors(
    target: torch.Tensor, classes: int, weight: torch.Tensor | None, ignore_index: int, compute: torch.dtype
) -> torch.Tensor:
    """(2,): the sum of the kept rows' weights, and their number."""
    device, rows = target.get_device(), target.shape[0]
    result = torch.empty(2, dtype=compute, device=target.device)
    blocks, partial = _partial(rows, target.device)
    at = 0 if partial is None else partial.data_ptr()
    _kernel("count_rows", device, compute, target.dtype)(
        blocks,
        target.data_ptr(),
        target.stride(0),
        rows,
        classes,
        ignore_index,
        0 if weight is None else weight.data_ptr(),
        at,
        result.data_ptr(),
    )
    if blocks > 1:
        _kernel("count_finish", device, compute, target.dtype)(1, at, blocks, result.data_ptr())
    return result


def reduced_loss(
    losses: torch.Tensor,
    lses: torch.Tensor,
    target: torch.Tensor | None,
    ignore_index: int,
    z_loss: float,
    by: torch.Tensor,
) -> torch.Tensor:
    """0-d: the rows' losses (without z-loss) over by[0], and z_loss times the kept rows' lse^2 over by[1]."""
    device, rows = losses.get_device(), losses.shape[0]
    result = torch.empty_strided((), (), dtype=losses.dtype, device=losses.device)  # in half the time of torch.empty
    blocks, partial = _partial(rows, losses.device)
    at = 0 if partial is None else partial.data_ptr()
    labels: Any = (0, 0) if target is None else (target.data_ptr(), target.stride(0))
    dtype = None if target is None else target.dtype
    _kernel("loss_rows", device, losses.dtype, dtype)(
        blocks,
        losses.data_ptr(),
        lses.data_ptr(),
        *labels,
        rows,
        ignore_index,
        float(z_loss),
        at,
        by.data_ptr(),
        result.data_ptr(),
    )
    if blocks > 1:
        _kernel("loss_finish", device, losses.dtype, dtype)(
            1, at, blocks, float(z_loss), by.data_ptr(), result.data_ptr()
        )
    return result

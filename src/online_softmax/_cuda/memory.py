"""Memory for results, in the time that a small call can spare."""

from __future__ import annotations

from typing import Any

import torch

# What torch's own compiler calls; it asks no dispatcher, and takes two thirds of the time of torch.empty_strided.
_quick: Any = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)


def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: int) -> torch.Tensor:
    """A tensor on `device`, which has to be the current one."""
    if _quick is None:
        return torch.empty_strided(shape, strides, dtype=dtype, device=torch.device("cuda", device))
    result: torch.Tensor = _quick(shape, strides, dtype)
    return result

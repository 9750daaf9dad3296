"""The launch of ignored.cu: rows of the input that ignore_index leaves out, as zeros."""

from __future__ import annotations

from functools import cache

import torch

from ..._cuda.compile import Source
from ..._cuda.launch import Loaded, load
from ..._cuda.rows import LABELS

_THREADS, _ROWS = 256, 4  # kThreads and kRows of ignored.cu


@cache
def _kernel(device: int, labels: torch.dtype) -> Loaded:
    source = Source("ops/linear_cross_entropy/ignored.cu", "without_ignored", (("LABEL", LABELS[labels]),))
    return load(device, source, _THREADS)


def fits(x: torch.Tensor, room: torch.Tensor | None) -> bool:
    """Whether x and the room for the result are whole words of 16 bytes, one after another."""
    at = x.data_ptr() | (0 if room is None else room.data_ptr())
    return x.is_contiguous() and at % 16 == 0 and x.shape[1] * x.element_size() % 16 == 0 and x.numel() > 0


def without_ignored(
    x: torch.Tensor, target: torch.Tensor, ignore_index: int, room: torch.Tensor | None
) -> torch.Tensor:
    """x with zeros where a label is `ignore_index`, in `room` if there is any."""
    out = torch.empty_like(x) if room is None else room
    rows, words = x.shape[0], x.shape[1] * x.element_size() // 16
    labels = target.data_ptr(), target.stride(0), ignore_index
    _kernel(x.get_device(), target.dtype)(-(-rows // _ROWS), x.data_ptr(), out.data_ptr(), rows, words, *labels)
    return out

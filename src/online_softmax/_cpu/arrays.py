"""NumPy arrays and tensors on their way into the kernels and out of them, cheaply: small calls pay for every line.

An array reaches a kernel through the buffer protocol, a tensor as ``(address, shape, strides, dtype)``.  torch is never
imported here: whoever passes a tensor has imported it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import num_threads

#: Less is not worth waking another thread for (pieces.h has the same number).
_ELEMENTS_A_TASK = 1 << 15
#: From here on NumPy asks the system for huge pages, and touching fresh memory costs a fraction of what it does torch.
_HUGE_PAGES_BYTES = 1 << 22


_BFLOAT16 = 1  # types.h


class _Codes(dict[Any, int]):
    """The kernels' number for a torch dtype (types.h), filled at the first tensor."""

    def __missing__(self, dtype: Any) -> int:
        torch = sys.modules["torch"]
        known = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64)
        if dtype not in known:
            raise TypeError(f"the CPU kernels take floating tensors and int32 or int64 targets, got {dtype}")
        self.update((each, code) for code, each in enumerate(known))
        return self[dtype]


_codes = _Codes()


def argument(x: Any) -> Any:
    """`x` as the kernels take it."""
    if x is None:
        return None
    if isinstance(x, np.ndarray):
        if x.dtype.kind == "V":  # no buffer protocol for a dtype that is not NumPy's own
            return x.ctypes.data, x.shape, tuple(stride // 2 for stride in x.strides), _BFLOAT16
        return x
    return x.data_ptr(), x.shape, x.stride(), _codes[x.dtype]


def threads_for(x: Any) -> int:
    """How many threads may work on `x`."""
    if isinstance(x, np.ndarray):
        return num_threads() if x.size > _ELEMENTS_A_TASK else 1
    return sys.modules["torch"].get_num_threads() if x.numel() > _ELEMENTS_A_TASK else 1


def empty(like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """A fresh C-contiguous array of the kind of `like`."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, dtype)
    torch = sys.modules["torch"]
    size = dtype.itemsize
    for extent in shape:
        size *= extent
    if size < _HUGE_PAGES_BYTES:
        return torch.empty(shape, dtype=dtype)
    # Any NumPy dtype of the right size will do; bfloat16 has none of its own.
    return torch.from_numpy(np.empty(shape, f"u{dtype.itemsize}")).view(dtype)


def compute_dtype(x: Any) -> Any:
    """float64 for float64, else float32, of the kind of `x`."""
    if isinstance(x, np.ndarray):
        return np.float64 if x.dtype.char == "d" else np.float32
    torch = sys.modules["torch"]
    return torch.float64 if x.dtype is torch.float64 else torch.float32


def readable(x: Any) -> Any:
    """A copy that the kernels can read, of an array whose elements lie off multiples of their size."""
    return np.array(x, order="C") if isinstance(x, np.ndarray) and not x.flags.aligned else x

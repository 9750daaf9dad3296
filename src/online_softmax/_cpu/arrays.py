"""NumPy arrays and tensors on their way into the kernels and out of them, cheaply: small calls pay for every line.

An array reaches a kernel through the buffer protocol, a tensor as ``(address, shape, strides, dtype)``.  torch is never
imported here: whoever passes a tensor has imported it.
"""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any

import numpy as np

from . import _native, num_threads

#: Less is not worth waking another thread for (pieces.h has the same number).
ELEMENTS_A_TASK = 1 << 15
#: Elements of a result from which on its memory is kept when it is freed.
LARGE = 1 << 20
_BFLOAT16 = 1  # types.h


class _Codes(dict[Any, int]):
    """The kernels' number for a torch dtype (types.h), filled at the first tensor."""

    def __missing__(self, dtype: Any) -> int:
        torch = sys.modules["torch"]
        known = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64)
        if dtype not in known:
            raise TypeError(f"the CPU kernels take floating tensors and int32 or int64 targets, got {dtype}")
        self.update((each, code) for code, each in enumerate(known))
        join_openmp()
        return self[dtype]


def join_openmp() -> None:
    """Work on the threads of the OpenMP library that torch has loaded, where it has one (threads.h says why)."""
    try:
        parallel = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, OSError, TypeError):
        return
    address = ctypes.cast(parallel, ctypes.c_void_p).value
    if address is not None:
        _native.use_team(address)


class _NumpyTypes(dict[Any, type[np.generic]]):
    """The NumPy type that a tensor of some torch dtype is allocated as, filled at the first tensor."""

    def __missing__(self, dtype: Any) -> type[np.generic]:
        torch = sys.modules["torch"]
        self.update({torch.float16: np.float16, torch.float32: np.float32, torch.float64: np.float64})
        self.update({torch.bfloat16: np.uint16, torch.int64: np.int64})
        return self[dtype]


_codes = _Codes()
_numpy_types = _NumpyTypes()


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
        return num_threads() if x.size > ELEMENTS_A_TASK else 1
    return sys.modules["torch"].get_num_threads() if x.numel() > ELEMENTS_A_TASK else 1


def empty(like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """A fresh C-contiguous array of the kind of `like`; a large one may use the memory of a freed result (memory.h)."""
    large = math.prod(shape) >= LARGE
    if isinstance(like, np.ndarray):
        return _kept_memory(shape, dtype) if large else np.empty(shape, dtype)
    torch = sys.modules["torch"]
    if not large:
        # Lengths one by one are parsed in half the time of a tuple.
        return torch.empty(*(shape or ((),)), dtype=dtype, device=like.device)
    numpy_type = _numpy_types[dtype]
    tensor = torch.from_numpy(_kept_memory(shape, numpy_type))
    return tensor.view(dtype) if numpy_type is np.uint16 else tensor


def empty_like(x: Any, dtype: Any) -> Any:
    """A fresh C-contiguous array of x's shape."""
    if type(x) is not np.ndarray and x.dtype == dtype and x.is_contiguous() and x.numel() < LARGE:
        return sys.modules["torch"].empty_like(x)  # takes a third of the time of torch.empty
    return empty(x, x.shape, dtype)


def _kept_memory(shape: tuple[int, ...], dtype: Any) -> Any:
    dtype = np.dtype(dtype)
    return _native.allocate(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def compute_dtype(x: Any) -> Any:
    """float64 for float64, else float32, of the kind of `x`."""
    if isinstance(x, np.ndarray):
        return np.float64 if x.dtype.char == "d" else np.float32
    torch = sys.modules["torch"]
    return torch.float64 if x.dtype is torch.float64 else torch.float32


def readable(x: Any) -> Any:
    """A copy that the kernels can read, of an array whose elements lie off multiples of their size."""
    return np.array(x, order="C") if isinstance(x, np.ndarray) and not x.flags.aligned else x

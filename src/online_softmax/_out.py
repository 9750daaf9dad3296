"""The check of out=, and how arrays lie in memory.  Nothing is written before it passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._arrays import Array, compiling, describe, device, dtype_name, is_tensor


def check_out(out: Any, x: Array, dtype: Any) -> None:
    """Refuse an out= that cannot take the result; the error says why, and what is wanted."""
    wanted = f"wanted a {_kind(x)} of shape {tuple(x.shape)}, dtype {dtype_name(dtype)}"
    wanted = f"{wanted} on {x.device}" if is_tensor(x) else wanted
    if not hasattr(out, "dtype") or not hasattr(out, "shape") or isinstance(out, np.ma.MaskedArray):
        raise TypeError(f"out is a {type(out).__name__}; {wanted}")
    if is_tensor(out) != is_tensor(x) or device(out) != device(x):
        raise TypeError(f"out is a {_kind(out)} of {describe(out)}; {wanted}")
    if tuple(out.shape) != tuple(x.shape) or out.dtype != dtype:
        order = " in swapped byte order" if isinstance(out, np.ndarray) and not out.dtype.isnative else ""
        raise ValueError(f"out has {describe(out)}{order}; {wanted}")
    if compiling():  # and then the result is copied into out, wherever that lies
        return
    fault = _unwritable(out) or _overlap(out, x)
    if fault is not None:
        raise ValueError(f"out {fault}; {wanted}")


def _kind(x: Array) -> str:
    if is_tensor(x):
        return "torch tensor"
    return "NumPy array" if isinstance(x, np.ndarray) else type(x).__name__


def _unwritable(out: Array) -> str | None:
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        return "is read-only"
    if is_tensor(out) and str(out.layout) != "torch.strided":
        return f"has layout {out.layout}"
    if is_tensor(out) and out.is_neg():
        return "is a negative view, such as z.conj().imag"
    strides = _byte_strides(out)
    if strides is not None and shares_memory_with_itself(out.shape, strides, out.itemsize):
        return f"has elements that share memory (strides {strides} bytes)"
    return None


def _overlap(out: Array, x: Array) -> str | None:
    strides = _byte_strides(out)
    if strides is None or not _overlaps(x, out):
        return None
    if _start(x) == _start(out) and _byte_strides(x) == strides and x.dtype == out.dtype:
        return None
    return "overlaps x in memory without being x itself"


def shares_memory_with_itself(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether two elements lie at one address; from the smallest step up, each must pass all that came before."""
    if 0 in shape:
        return False
    reach = itemsize
    for step, length in sorted((abs(step), length) for step, length in zip(strides, shape, strict=True) if length > 1):
        if step < reach:
            return True
        reach += step * (length - 1)
    return False


def _start(x: Array) -> int:
    return int(x.data_ptr() if is_tensor(x) else x.__array_interface__["data"][0])


def _byte_strides(x: Array) -> tuple[int, ...] | None:
    if isinstance(x, np.ndarray):
        return x.strides
    if is_tensor(x):
        return tuple(step * x.element_size() for step in x.stride())
    return None


def _overlaps(x: Array, y: Array) -> bool:
    if isinstance(x, np.ndarray):
        return bool(np.may_share_memory(x, y))
    (x_low, x_high), (y_low, y_high) = _extent(x), _extent(y)
    return x_low < y_high and y_low < x_high


def _extent(x: Array) -> tuple[int, int]:
    """First byte and one past the last byte a tensor's elements lie in (torch strides are never negative)."""
    if x.numel() == 0:
        return 0, 0
    last = sum((length - 1) * step for length, step in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()

"""The matrix products, into memory that is there already: by cuBLAS or the CPU library that torch and NumPy carry."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np

from ..._arrays import Array, dtype_name

_ROW_BYTES = 128


def empty(like: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """An uninitialised array of like's kind, on its device."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, dtype)
    if like.device.type == "cpu":
        return _cpu_empty(shape, dtype)
    return like.new_empty(shape, dtype=dtype)


def _cpu_empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """Memory from NumPy, which asks for huge pages: touching fresh small ones is slow."""
    return sys.modules["torch"].from_numpy(np.empty(shape, f"u{dtype.itemsize}")).view(dtype)


def buffer(like: Array, rows: int, columns: int) -> Array:
    """(rows, columns) for logits; on a GPU every row starts on 128 bytes, whatever the number of columns.

    Products of rows that start elsewhere run at a fraction of the speed.
    """
    if isinstance(like, np.ndarray) or like.device.type == "cpu":
        return empty(like, (rows, columns), like.dtype)
    step = _ROW_BYTES // like.dtype.itemsize
    return like.new_empty((rows, -(-columns // step) * step))[:, :columns]


def device_bytes(x: Array) -> int:
    """The memory of the GPU that x lies on; 0 for the CPU's arrays."""
    if isinstance(x, np.ndarray) or x.device.type != "cuda":
        return 0
    return _total_memory(x.get_device())


@cache
def _total_memory(device: int) -> int:
    return int(sys.modules["torch"].cuda.get_device_properties(device).total_memory)


def ready(x: Array) -> Array:
    """x itself, or a copy if its strides would make every product copy it."""
    if isinstance(x, np.ndarray) or x.is_contiguous():
        return x
    strides = sorted(x.stride())
    return x if strides[0] == 1 and strides[1] >= max(1, min(x.shape)) and 0 not in strides else x.contiguous()


def logits(x: Array, weight: Array, bias: Array | None, out: Array) -> Array:
    """out = x @ weight.T + bias."""
    if isinstance(x, np.ndarray):
        np.matmul(x, weight.T, out=out)
        if bias is not None:
            out += bias
        return out
    torch = sys.modules["torch"]
    if bias is None:
        return torch.mm(x, weight.t(), out=out)
    return torch.addmm(bias, x, weight.t(), out=out)


def into(a: Array, b: Array, out: Array) -> None:
    """out = a @ b."""
    if isinstance(a, np.ndarray):
        if out.dtype == a.dtype:
            np.matmul(a, b, out=out)
        else:
            out[...] = a @ b
        return
    torch = sys.modules["torch"]
    if out.dtype == a.dtype:
        torch.mm(a, b, out=out)
    elif out.device.type == "cuda" and out.dtype == torch.float32:
        torch.mm(a, b, out_dtype=out.dtype, out=out)
    else:
        out.copy_(torch.mm(a, b))


def add(a: Array, b: Array, total: Array, fresh: bool) -> None:
    """total += a @ b, or = if `fresh`, never rounded to less than total's dtype."""
    if isinstance(a, np.ndarray):
        if fresh:
            into(a, b, total)
        else:
            total += a @ b
        return
    torch = sys.modules["torch"]
    if total.dtype != a.dtype:
        if total.device.type == "cuda":
            if fresh:
                torch.mm(a, b, out_dtype=total.dtype, out=total)
            else:
                torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
            return
        # The CPU has no product of narrow numbers with a wide result.
        a, b = a.to(total.dtype), b.to(total.dtype)
    if fresh:
        torch.mm(a, b, out=total)
    else:
        total.addmm_(a, b)


def copy(source: Array, out: Array) -> None:
    """out = source, rounded to out's dtype."""
    if isinstance(out, np.ndarray):
        out[...] = source
    else:
        out.copy_(source)


def column_sums(rows: Array, dtype: Any) -> Array:
    """The sum over rows, in `dtype`."""
    if isinstance(rows, np.ndarray):
        return np.ones(rows.shape[0], dtype) @ rows
    torch = sys.modules["torch"]
    if rows.device.type == "cuda" and narrow(rows.dtype) and rows.shape[0]:
        # Reads few rows faster than torch's sum does, many as fast.
        return torch.mm(rows.new_ones((1, rows.shape[0])), rows, out_dtype=dtype)[0]
    return rows.sum(0, dtype=dtype)


def narrow(dtype: Any) -> bool:
    """Whether sums of many terms need a wider dtype."""
    return dtype_name(dtype) in ("float16", "bfloat16")

"""softmax, log_softmax and logsumexp by the native kernels, for NumPy arrays and CPU tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._cpu import _native
from ..._cpu.arrays import ELEMENTS_A_TASK, argument, empty, empty_like, readable, threads_for

_SOFTMAX, _LOG_SOFTMAX, _LOGSUMEXP = 0, 1, 2  # kernels.h


def softmax(x: Any, axis: int, dtype: Any, out: Any = None) -> Any:
    """exp(x) / sum(exp(x)) along `axis`."""
    return _forward(_SOFTMAX, x, axis, dtype, out)


def log_softmax(x: Any, axis: int, dtype: Any, out: Any = None) -> Any:
    """x - logsumexp(x) along `axis`."""
    return _forward(_LOG_SOFTMAX, x, axis, dtype, out)


def logsumexp(x: Any, axis: int, dtype: Any) -> Any:
    """log(sum(exp(x))) along `axis`, which is removed."""
    shape = x.shape
    return _forward(_LOGSUMEXP, x, axis, dtype, empty(x, (*shape[:axis], *shape[axis + 1 :]), dtype))


def softmax_backward(grad: Any, y: Any, axis: int, dtype: Any, out: Any = None) -> Any:
    """y * (grad - sum(grad * y))."""
    return _backward(_SOFTMAX, grad, y, axis, dtype, out)


def log_softmax_backward(grad: Any, y: Any, axis: int, dtype: Any, out: Any = None) -> Any:
    """grad - exp(y) * sum(grad)."""
    return _backward(_LOG_SOFTMAX, grad, y, axis, dtype, out)


def logsumexp_backward(grad: Any, x: Any, lse: Any, axis: int, out: Any = None) -> Any:
    """grad * exp(x - lse), in the dtype of `x`."""
    if out is None:
        out = empty_like(x, x.dtype)
    arrays = argument(x), argument(grad), argument(lse)
    if not _native.logsumexp_backward(*arrays, argument(out), axis, threads_for(x)):
        result = logsumexp_backward(readable(grad), readable(x), readable(lse), axis)
        out[...] = result
    return out


def _forward(operation: int, x: Any, axis: int, dtype: Any, out: Any) -> Any:
    if out is None:
        if type(x) is np.ndarray and x.size <= ELEMENTS_A_TASK and x.dtype == dtype and x.dtype.kind == "f":
            # The short way of small arrays, for which the lines below cost more than the work.
            out = np.empty(x.shape, dtype)
            if _native.softmax_forward(operation, x, out, axis, 1):
                return out
        out = empty_like(x, dtype)
    if not _native.softmax_forward(operation, argument(x), argument(out), axis, threads_for(x)):
        fresh = empty(x, out.shape, dtype)
        out[...] = _forward(operation, readable(x), axis, dtype, fresh)
    return out


def _backward(operation: int, grad: Any, y: Any, axis: int, dtype: Any, out: Any) -> Any:
    if out is None:
        out = empty_like(y, dtype)
    if not _native.softmax_backward(operation, argument(grad), argument(y), argument(out), axis, threads_for(y)):
        out[...] = _backward(operation, readable(grad), readable(y), axis, dtype, None)
    return out

"""softmax, log_softmax, logsumexp and their gradients on CUDA tensors: rows here, other axes in columns.py."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..._cuda.launch import launch_on, stream_here
from ..._cuda.memory import empty
from ..._cuda.ready import find, keep
from ..._cuda.rows import compute_dtype, is_last, row_stride, rows_of
from . import columns, kernels
from .plans import LOG_SOFTMAX, LOGSUMEXP, SOFTMAX

__all__ = ["log_softmax", "log_softmax_backward", "logsumexp", "logsumexp_backward", "softmax", "softmax_backward"]


def _into(
    shape: torch.Size,
    dtype: torch.dtype,
    like: torch.Tensor,
    out: torch.Tensor | None,
    fits: Callable[[torch.Tensor], bool],
) -> tuple[torch.Tensor, torch.Tensor]:
    """(what the kernel writes, what the caller gets): the same unless `out` has strides no kernel writes."""
    if out is not None and fits(out):
        return out, out
    fresh = torch.empty(shape, dtype=dtype, device=like.device)
    return fresh, fresh if out is None else out


def _done(written: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    return result if written is result else result.copy_(written)


def _writes_rows(out: torch.Tensor) -> bool:
    return row_stride(out) is not None


def _as_last(x: torch.Tensor, axis: int) -> torch.Tensor:
    """`x` with the axis last; only axes of one element are passed over."""
    return x if axis == x.ndim - 1 else x.flatten(axis)


def _new(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A contiguous tensor of x's shape."""
    if x.dtype is dtype and x.is_contiguous():
        return torch.empty_like(x)  # in half the time
    return torch.empty(x.shape, dtype=dtype, device=x.device)


def _forward(operation: int, x: torch.Tensor, axis: int, dtype: torch.dtype, out: torch.Tensor | None) -> torch.Tensor:
    device, shape, strides = x.get_device(), x.shape, x.stride()
    key = (operation, device, x.dtype, dtype, shape, strides, x.data_ptr() % 16, axis)
    if out is None:
        ready = find(key)
        if ready is not None:
            stream = stream_here(device)
            if stream is not None and x.is_contiguous():
                y = empty(tuple(shape), strides, dtype, device)
                launch_on(stream, *ready.on, x.data_ptr(), y.data_ptr(), *ready.rest)
                return y
            y = _new(x, dtype)
            ready.kernel(ready.grid, x.data_ptr(), y.data_ptr(), *ready.rest)
            return y
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=dtype, device=x.device) if out is None else out
    if not is_last(x, axis):
        y, result = _into(x.shape, dtype, x, out, lambda t: columns.writes(t, axis))
        columns.forward(operation, x, axis, y)
        return _done(y, result)
    y, result = _into(x.shape, dtype, x, out, _writes_rows)
    view = _as_last(y, axis)
    stride = row_stride(view)
    assert stride is not None
    rows = rows_of(_as_last(x, axis))
    ready = kernels.forward(operation, rows, y, stride)
    if out is None and ready is not None and rows.tensor.data_ptr() == x.data_ptr():
        keep(key, ready)
    return _done(y, result)


def softmax(x: torch.Tensor, axis: int, dtype: torch.dtype, out: torch.Tensor | None = None) -> torch.Tensor:
    """exp(x - logsumexp(x)) along an axis."""
    return _forward(SOFTMAX, x, axis, dtype, out)


def log_softmax(x: torch.Tensor, axis: int, dtype: torch.dtype, out: torch.Tensor | None = None) -> torch.Tensor:
    """x - logsumexp(x) along an axis."""
    return _forward(LOG_SOFTMAX, x, axis, dtype, out)


def logsumexp(x: torch.Tensor, axis: int, dtype: torch.dtype) -> torch.Tensor:
    """log(sum(exp(x))) along an axis, which disappears."""
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    key = (LOGSUMEXP, x.get_device(), x.dtype, dtype, x.shape, x.stride(), x.data_ptr() % 16, axis)
    ready = find(key)
    if ready is not None:
        y = torch.empty(shape, dtype=dtype, device=x.device)
        ready.kernel(ready.grid, x.data_ptr(), y.data_ptr(), *ready.rest)
        return y
    if x.numel() == 0:
        return torch.full(shape, -torch.inf, dtype=dtype, device=x.device)
    y = torch.empty(shape, dtype=dtype, device=x.device)
    if is_last(x, axis):
        rows = rows_of(_as_last(x, axis))
        ready = kernels.forward(LOGSUMEXP, rows, y, 1)
        if ready is not None and rows.tensor.data_ptr() == x.data_ptr():
            keep(key, ready)
    else:
        columns.forward(LOGSUMEXP, x, axis, y)
    return y


def _backward(
    operation: int, grad: torch.Tensor, y: torch.Tensor, axis: int, dtype: torch.dtype, out: torch.Tensor | None
) -> torch.Tensor:
    device, shape, strides = y.get_device(), y.shape, y.stride()
    layout = (shape, strides, grad.stride(), y.data_ptr() % 16, axis)
    key = ("backward", operation, device, y.dtype, grad.dtype, dtype, layout)
    if out is None:
        ready = find(key)
        if ready is not None:
            stream = stream_here(device)
            if stream is not None and y.is_contiguous():
                dx = empty(tuple(shape), strides, dtype, device)
                launch_on(stream, *ready.on, grad.data_ptr(), y.data_ptr(), dx.data_ptr(), *ready.rest)
                return dx
            dx = _new(y, dtype)
            ready.kernel(ready.grid, grad.data_ptr(), y.data_ptr(), dx.data_ptr(), *ready.rest)
            return dx
    pointers = grad.data_ptr(), y.data_ptr()
    if y.numel() == 0:
        return torch.empty(y.shape, dtype=dtype, device=y.device) if out is None else out
    if grad.dtype != y.dtype:
        common = torch.promote_types(grad.dtype, y.dtype)
        grad, y = grad.to(common), y.to(common)
    if not is_last(y, axis):
        dx, result = _into(y.shape, dtype, y, out, lambda t: columns.writes(t, axis))
        columns.backward(operation, grad, y, axis, dx)
        return _done(dx, result)
    dx, result = _into(y.shape, dtype, y, out, _writes_rows)
    stride = row_stride(_as_last(dx, axis))
    assert stride is not None
    incoming, rows = rows_of(_as_last(grad, axis)), rows_of(_as_last(y, axis))
    ready = kernels.backward(operation, incoming, rows, dx, stride)
    if out is None and ready is not None and (incoming.tensor.data_ptr(), rows.tensor.data_ptr()) == pointers:
        keep(key, ready)
    return _done(dx, result)


def softmax_backward(
    grad: torch.Tensor, y: torch.Tensor, axis: int, dtype: torch.dtype, out: torch.Tensor | None = None
) -> torch.Tensor:
    """y * (grad - sum(grad * y)), y the result of softmax."""
    return _backward(SOFTMAX, grad, y, axis, dtype, out)


def log_softmax_backward(
    grad: torch.Tensor, y: torch.Tensor, axis: int, dtype: torch.dtype, out: torch.Tensor | None = None
) -> torch.Tensor:
    """grad - exp(y) * sum(grad), y the result of log_softmax."""
    return _backward(LOG_SOFTMAX, grad, y, axis, dtype, out)


def logsumexp_backward(
    grad: torch.Tensor, x: torch.Tensor, lse: torch.Tensor, axis: int, out: torch.Tensor | None = None
) -> torch.Tensor:
    """grad * exp(x - lse); a row with lse = +inf shares its grad among its elements that are +inf."""
    if x.numel() == 0:
        return torch.empty_like(x) if out is None else out
    compute = compute_dtype(x.dtype)
    grad, lse = grad.to(compute).contiguous(), lse.to(compute).contiguous()
    if not is_last(x, axis):
        dx, result = _into(x.shape, x.dtype, x, out, lambda t: columns.writes(t, axis))
        columns.logsumexp_backward(grad, x, lse, axis, dx)
        return _done(dx, result)
    dx, result = _into(x.shape, x.dtype, x, out, _writes_rows)
    stride = row_stride(_as_last(dx, axis))
    assert stride is not None
    kernels.logsumexp_backward(grad, rows_of(_as_last(x, axis)), lse, dx, stride)
    return _done(dx, result)

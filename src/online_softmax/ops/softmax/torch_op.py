"""softmax, log_softmax and logsumexp of tensors: autograd, torch.compile and autocast around any implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..._arguments import check_where, merge_axes, normalise_axes
from ..._arrays import namespace, result_dtype
from ..._dispatch import implementation
from ..._out import check_out
from .._torch import (
    LIBRARY,
    as_floating,
    autocast_to_float32,
    define,
    is_ordinary,
    is_plain,
    once,
    records,
    stored,
    undecorated_apply,
)


def normalised(name: str, x: Tensor, axis: Any, where: Any, dtype: Any, out: Tensor | None, impl: str) -> Tensor:
    """softmax or log_softmax (`name`) of a tensor; the arguments are those of the public functions."""
    if where is None and dtype is None and out is None and type(axis) is int and is_ordinary(x):
        ndim = x.ndim
        if -ndim <= axis < ndim:
            dtype = torch.float32 if x.is_cuda and autocast_to_float32(x) else x.dtype
            y: Tensor
            if records(x):
                y = _recorded(x, name, axis % ndim, dtype, impl)
            else:
                y = getattr(implementation("softmax", x, impl), name)(x, axis % ndim, dtype)
            return y
    x = as_floating(x, "x", dtype)
    to = _result_dtype(x, dtype)
    axes = normalise_axes(axis, x.ndim)
    if out is not None:
        return _into(name, x, axes, where, to, out, impl)
    if where is None and len(axes) == 1 and x.ndim:
        return _apply(name, x, axes[0], to, impl)
    mask = None if where is None else check_where(where, x)
    rows, restore = merge_axes(namespace(x), x if mask is None else torch.where(mask, x, -torch.inf), axes)
    y = restore(_apply(name, rows, rows.ndim - 1, to, impl))
    return y if mask is None else torch.where(mask, y, 0.0 if name == "softmax" else -torch.inf)


def _into(name: str, x: Tensor, axes: Any, where: Any, to: torch.dtype, out: Tensor, impl: str) -> Tensor:
    if records(x, out if isinstance(out, Tensor) else None):
        raise ValueError("out= is given where autograd records: call it under torch.no_grad(), or without out=")
    check_out(out, x, to)
    if where is None and len(axes) == 1 and x.ndim and is_plain(x, out):
        getattr(implementation("softmax", x, impl), name)(x, axes[0], to, out)
        torch.autograd.graph.increment_version(out)
        return out
    return out.copy_(normalised(name, x, axes, where, to, None, impl))


def prepare_logsumexp(x: Tensor, axis: Any, dtype: Any, impl: str) -> tuple[Callable[..., Tensor], Tensor, Any, Any]:
    """What the public logsumexp needs of a tensor: (run(x, axis, dtype), x, axes, dtype)."""
    x = as_floating(x, "x", dtype)

    def run(x: Tensor, axis: int, dtype: torch.dtype) -> Tensor:
        compute = torch.float64 if torch.float64 in (x.dtype, dtype) else torch.float32
        # The gradient needs lse unrounded, so it is rounded to the result's dtype behind the recorded operation.
        return _apply("logsumexp", x, axis, compute, impl).to(dtype)

    return run, x, normalise_axes(axis, x.ndim), _result_dtype(x, dtype)


def _result_dtype(x: Tensor, dtype: Any) -> torch.dtype:
    if dtype is None:
        return torch.float32 if autocast_to_float32(x) else x.dtype
    found: torch.dtype = dtype if isinstance(dtype, torch.dtype) and dtype in _FLOATS else result_dtype(dtype, x)
    return found


_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _apply(name: str, x: Tensor, axis: int, dtype: torch.dtype, impl: str) -> Tensor:
    """One axis, one dtype: the implementation itself, the Function, or the operator."""
    if not is_plain(x):
        y: Tensor = torch.ops.online_softmax.rows(x, name, axis, dtype, impl)
        return y
    return _apply_to_plain(name, x, axis, dtype, impl)


def _apply_to_plain(name: str, x: Tensor, axis: int, dtype: torch.dtype, impl: str) -> Tensor:
    if records(x):
        y: Tensor = _Rows.apply(x, name, axis, dtype, impl)
        return y
    return _forward(x, name, axis, dtype, impl)


def _forward(x: Tensor, name: str, axis: int, dtype: torch.dtype, impl: str) -> Tensor:
    y: Tensor = getattr(implementation("softmax", x, impl), name)(x, axis, dtype)
    return y


def _backward(grad: Tensor, saved: Tensor, y: Tensor, name: str, axis: int, dtype: torch.dtype, impl: str) -> Tensor:
    """The gradient of x in `dtype`; `saved` is x for logsumexp and y itself for the others."""
    module = implementation("softmax", saved, impl)
    if name == "logsumexp":
        dx: Tensor = module.logsumexp_backward(grad, saved, y, axis)
        return dx
    dx = getattr(module, f"{name}_backward")(grad, y, axis, dtype)
    return dx


def _differentiable_backward(
    grad: Tensor, saved: Tensor, y: Tensor, name: str, axis: int, dtype: torch.dtype
) -> Tensor:
    """The same gradient in torch's own operations, so that it can be differentiated again."""
    if name == "softmax":
        return (y * (grad - (grad * y).sum(axis, keepdim=True))).to(dtype)
    if name == "log_softmax":
        return (grad - y.exp() * grad.sum(axis, keepdim=True)).to(dtype)
    lse, grad = y.unsqueeze(axis), grad.unsqueeze(axis)
    finite = torch.isfinite(lse)
    p = torch.where(finite, (saved.to(lse.dtype) - torch.where(finite, lse, 0.0)).exp(), 0.0)
    infinite = (saved == torch.inf).to(lse.dtype)
    share = infinite / infinite.sum(axis, keepdim=True).clamp(min=1.0)
    p = torch.where(lse == torch.inf, share, torch.where(torch.isnan(lse), lse, p))
    return (grad * p).to(dtype)


class _Rows(torch.autograd.Function):
    """Eager autograd: saves y (softmax, log_softmax), or x and lse (logsumexp)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, name: str, axis: int, dtype: torch.dtype, impl: str) -> Tensor:
        y = _forward(x, name, axis, dtype, impl)
        ctx.save_for_backward(*((x, y) if name == "logsumexp" else (y,)))
        ctx.how = name, axis, x.dtype, impl
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        name, axis, dtype, impl = ctx.how
        saved, *rest = ctx.saved_tensors
        y = rest[0] if rest else saved
        (grad,) = grads
        if torch.is_grad_enabled():  # create_graph=True
            dx = _differentiable_backward(grad, saved, y, name, axis, dtype)
        else:
            dx = _backward(stored(grad), saved, y, name, axis, dtype, impl)
        return dx, None, None, None, None


_recorded = undecorated_apply(_Rows)


def _fake_rows(x: Tensor, name: str, axis: int, dtype: torch.dtype, impl: str) -> Tensor:
    shape = [length for i, length in enumerate(x.shape) if name != "logsumexp" or i != axis]
    return x.new_empty(shape, dtype=dtype)


def _fake_rows_backward(
    grad: Tensor, saved: Tensor, y: Tensor, name: str, axis: int, dtype: torch.dtype, impl: str
) -> Tensor:
    return saved.new_empty(saved.shape, dtype=dtype)


_ROWS = define("rows(Tensor x, str name, int axis, ScalarType dtype, str impl) -> Tensor", _forward, _fake_rows)
_ROWS_BACKWARD = define(
    "rows_backward(Tensor grad, Tensor saved, Tensor y, str name, int axis, ScalarType dtype, str impl) -> Tensor",
    _backward,
    _fake_rows_backward,
)


def _operator_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, name, axis, _, impl = inputs
    ctx.save_for_backward(*((x, output) if name == "logsumexp" else (output,)))
    ctx.how = name, axis, x.dtype, impl


def _operator_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
    name, axis, dtype, impl = ctx.how
    saved, y = ctx.saved_tensors[0], ctx.saved_tensors[-1]
    dx = torch.ops.online_softmax.rows_backward(grad, saved, y, name, axis, dtype, impl)
    return dx, None, None, None, None


torch.library.register_autograd(_ROWS, _operator_backward, setup_context=_operator_setup, lib=LIBRARY)
torch.library.register_autograd(_ROWS_BACKWARD, once, lib=LIBRARY)

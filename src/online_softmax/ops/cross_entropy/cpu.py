"""Cross-entropy and its gradient by the native kernels, for NumPy arrays and CPU tensors."""

from __future__ import annotations

from typing import Any

from ..._cpu import _native
from ..._cpu.arrays import argument, compute_dtype, empty, empty_like, readable, threads_for
from .options import Forward, Options

_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}  # kernels.h


def forward(
    logits: Any,
    target: Any,
    weight: Any,
    num_items: Any,
    options: Options,
    *,
    aux: bool = False,
    gradient: Any = None,
) -> Forward:
    """Loss, lse and what else is asked for, of (M, C) logits."""
    dtype = compute_dtype(logits)
    rows = logits.shape[:1]
    lse = empty(logits, rows, dtype)
    result = Forward(
        loss=empty(logits, rows if options.reduction == "none" else (), dtype),
        lse=lse,
        lse_low=empty_like(lse, dtype),
        divisors=empty(logits, (2,), dtype),
        z_loss=empty(logits, rows, dtype) if aux else None,
        predicted=empty(logits, rows, _int64(dtype)) if aux else None,
        entropy=empty(logits, rows, dtype) if aux else None,
        gradient=empty_like(logits, logits.dtype) if gradient is True else gradient,
    )
    done = _native.cross_entropy_forward(
        argument(logits),
        argument(target),
        argument(weight),
        argument(result.gradient),
        _settings(options),
        _REDUCTIONS[options.reduction],
        None if num_items is None else float(num_items),
        argument(result.loss),
        argument(result.lse),
        argument(result.lse_low),
        argument(result.divisors),
        argument(result.z_loss),
        argument(result.predicted),
        argument(result.entropy),
        threads_for(logits),
    )
    if done:
        return result
    wanted = None if gradient is None else True
    copies = readable(logits), readable(target), readable(weight)
    again = forward(*copies, num_items, options, aux=aux, gradient=wanted)
    if gradient is None or gradient is True:
        return again
    gradient[...] = again.gradient
    return again._replace(gradient=gradient)


def backward(
    logits: Any,
    target: Any,
    weight: Any,
    lse: Any,
    lse_low: Any,
    divisors: Any,
    options: Options,
    grad_loss: Any,
    grad_lse: Any,
    gradient: Any = True,
) -> Any:
    """The gradient of the logits, from the forward pass's lse and divisors."""
    out = empty_like(logits, logits.dtype) if gradient is True else gradient
    done = _native.cross_entropy_backward(
        argument(logits),
        argument(target),
        argument(weight),
        argument(out),
        _settings(options),
        argument(lse),
        argument(lse_low),
        argument(divisors),
        argument(grad_loss),
        argument(grad_lse),
        threads_for(logits),
    )
    if not done:
        copies = readable(logits), readable(target), readable(weight)
        out[...] = backward(*copies, lse, lse_low, divisors, options, grad_loss, grad_lse)
    return out


def rescale(gradient: Any, grad_loss: Any) -> Any:
    """`gradient` times a number, in place; untouched when that is exactly 1."""
    factor = float(grad_loss)
    if factor != 1.0 and not _native.rescale(argument(gradient), factor, threads_for(gradient)):
        gradient *= factor
    return gradient


def _settings(options: Options) -> tuple[int, float, float, float, float]:
    cap = 0.0 if options.softcap is None else options.softcap
    return options.ignore_index, options.label_smoothing, options.scale, cap, options.z_loss


def _int64(dtype: Any) -> Any:
    """int64 of the same library as a floating dtype."""
    if isinstance(dtype, type):
        return "int64"
    import torch  # loaded already: `dtype` is its

    return torch.int64

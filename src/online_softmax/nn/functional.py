"""The functions of torch.nn.functional with torch's own signatures, computed online.

A program changes its import and nothing else:

    from online_softmax.nn import functional as F

Losses of fp16 and bf16 logits are fp32; torch rounds them to the logits' dtype.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn import _reduction

from .._arguments import answers_synonyms, flag, normalise_axes
from .._arrays import describe
from ..ops import cross_entropy as _cross_entropy
from ..ops import linear_cross_entropy as _linear_cross_entropy
from ..ops import softmax as _softmax

__all__ = ["cross_entropy", "linear_cross_entropy", "log_softmax", "logsumexp", "softmax"]


@answers_synonyms
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Tensor:
    """torch.nn.functional.softmax: exp(input) / Σ exp(input) along dim, in `dtype` or input's.

    Raises what `online_softmax.softmax` raises; dim=None chooses as torch does, with its warning.
    """
    axes = _dims("softmax", input, dim, _stacklevel)
    result: Tensor = _softmax.softmax(input, axis=axes, dtype=dtype)
    return result


@answers_synonyms
def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> Tensor:
    """torch.nn.functional.log_softmax: input − log Σ exp(input) along dim, nats, in `dtype` or input's."""
    axes = _dims("log_softmax", input, dim, _stacklevel)
    result: Tensor = _softmax.log_softmax(input, axis=axes, dtype=dtype)
    return result


@answers_synonyms
def logsumexp(input: Tensor, dim: int | tuple[int, ...], keepdim: bool = False) -> Tensor:
    """torch.logsumexp: log Σ exp(input) over dim, an int or a tuple of ints, nats, in input's dtype."""
    axes = normalise_axes(dim, _tensor("input", input).ndim, "dim")
    result: Any = _softmax.logsumexp(input, axis=axes, keepdims=flag("keepdim", keepdim))
    return result  # type: ignore[no-any-return]


@answers_synonyms
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """torch.nn.functional.cross_entropy: see `online_softmax.cross_entropy` for shapes, errors and what is returned."""
    if size_average is not None or reduce is not None:
        reduction = _reduction.legacy_get_string(size_average, reduce)
    result: Tensor = _cross_entropy.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )
    return result


@answers_synonyms
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """torch.nn.functional.linear_cross_entropy (torch 2.13): see `online_softmax.linear_cross_entropy`.

    Rows are always taken in chunks. Of `options`, a torch.nn.LinearCrossEntropyOptions, only the chunk size is used. A
    weight of more than two dimensions, (C, d1, …, H), is multiplied out: its logits are made in full.
    """
    constants: dict[str, Any] = {"weight": weight, "reduction": reduction, "label_smoothing": label_smoothing}
    constants["ignore_index"] = -100 if ignore_index is None else ignore_index
    if _tensor("linear_weight", linear_weight).ndim > 2:
        logits = _logits(_tensor("input", input), linear_weight, linear_bias)
        several: Tensor = _cross_entropy.cross_entropy(logits, target, **constants)
        return several
    loss: Tensor = _linear_cross_entropy.linear_cross_entropy(
        input,
        linear_weight,
        target,
        linear_bias=linear_bias,
        chunk_rows=getattr(options, "batch_chunk_size", None),
        **constants,
    )
    return loss


def _tensor(name: str, x: Any) -> Tensor:
    if isinstance(x, Tensor):
        return x
    raise TypeError(f"{name} is a {type(x).__name__}; wanted a torch tensor")


def _dims(name: str, input: Any, dim: Any, stacklevel: int) -> int | tuple[int, ...]:
    """dim= checked; where none is given the one that torch picks: 0 for 0, 1 and 3 dimensions, else 1."""
    ndim = _tensor("input", input).ndim
    if dim is not None:
        axes = normalise_axes(dim, ndim, "dim")
        return axes[0] if len(axes) == 1 else axes
    # One level more than torch counts: the decorator.
    warnings.warn(f"{name} without dim= guesses one from the shape; pass dim", UserWarning, stacklevel + 1)
    return 0 if ndim in (0, 1, 3) else 1


def _logits(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """input times a weight of several class dimensions, (C, d1, …, H)."""
    if input.ndim == 0 or weight.shape[-1] != input.shape[-1]:
        raise ValueError(f"linear_weight has {describe(weight)}; wanted (C, d1, …, H) for input of {describe(input)}")
    logits: Tensor = torch.tensordot(input, weight, dims=([-1], [-1]))
    if bias is None:
        return logits
    if tuple(_tensor("linear_bias", bias).shape) != tuple(weight.shape[:-1]):
        raise ValueError(f"linear_bias has {describe(bias)}; wanted shape {tuple(weight.shape[:-1])}")
    return logits + bias

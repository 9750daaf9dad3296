"""Cross-entropy on CUDA tensors.  Nothing here waits for the device: divisors and incoming gradients stay there."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from ..._cuda.compile import Source
from ..._cuda.launch import Loaded, load
from ..._cuda.rows import NAMES, compute_dtype
from . import kernels, totals
from .options import Forward, Options

__all__ = ["backward", "forward", "rescale"]


def _side_by_side(x: torch.Tensor) -> torch.Tensor:
    """The matrix with its columns next to each other: itself, or a copy."""
    return x if x.shape[1] <= 1 or x.stride(1) == 1 else x.contiguous()


def _divisors(
    logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, num_items: Any, options: Options
) -> torch.Tensor:
    compute = compute_dtype(logits.dtype)
    if options.reduction != "mean":
        return torch.ones(2, dtype=compute, device=logits.device)
    if isinstance(num_items, torch.Tensor):
        return num_items.detach().to(device=logits.device, dtype=compute).expand(2).contiguous()
    if num_items is not None or target.is_floating_point():
        number = float(logits.shape[0] if num_items is None else num_items)
        return torch.full((2,), number, dtype=compute, device=logits.device)
    return totals.divisors(target, logits.shape[1], weight, options.ignore_index, compute)


def _target(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    if not target.is_floating_point():
        return target
    known = compute_dtype(logits.dtype)  # one kernel a dtype of logits, not one for each pair
    return _side_by_side(target if target.dtype in (logits.dtype, known) else target.to(known))


def _gradient(logits: torch.Tensor, gradient: Any) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """(what the kernel writes, what the caller gets)."""
    if gradient is None:
        return None, None
    if gradient is True:
        if logits.is_contiguous():
            gradient = torch.empty_like(logits)  # in half the time of torch.empty
        else:
            gradient = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
        return gradient, gradient
    if gradient.dtype == logits.dtype and (gradient.shape[1] <= 1 or gradient.stride(1) == 1):
        return gradient, gradient
    return torch.empty(logits.shape, dtype=logits.dtype, device=logits.device), gradient


def forward(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    num_items: Any,
    options: Options,
    *,
    aux: bool = False,
    gradient: Any = None,
) -> Forward:
    """Loss, row summaries and, if asked for, the gradient, from one read of the logits."""
    rows = logits.shape[0]
    compute = compute_dtype(logits.dtype)
    target = _target(logits, target)
    divisors = _divisors(logits, target, weight, num_items, options)
    if gradient is not None and logits.dtype == torch.float64:
        # Checks of gradients are done in fp64 and demand equal bits of every backward: there is one way to make it.
        result = forward(logits, target, weight, num_items, options, aux=aux)
        one = torch.ones((), dtype=compute, device=logits.device)
        return result._replace(gradient=backward(logits, target, weight, *result.saved, options, one, None, gradient))
    written, gradient = _gradient(logits, gradient)
    out = torch.empty(3, rows, dtype=compute, device=logits.device)
    losses, lses, lse_lows = out[0], out[1], out[2]  # in less time than unbind
    more = (
        (torch.empty_like(losses), torch.empty_like(losses, dtype=torch.int64), torch.empty_like(losses))
        if aux
        else None
    )
    if logits.shape[1] == 0:  # no class: probabilities ask for nothing, an index for what is not there
        losses.fill_(0.0 if target.is_floating_point() else torch.nan)
        lses.fill_(-torch.inf)
        lse_lows.zero_()
    elif rows:
        kernels.run(_side_by_side(logits), target, weight, options, divisors, out, written, aux=more)
    if written is not gradient:
        gradient.copy_(written)
    if options.reduction != "none":
        labels = None if target.is_floating_point() else target
        losses = totals.reduced_loss(losses, lses, labels, options.ignore_index, options.z_loss, divisors)
    z_losses, predicted, entropies = more or (None, None, None)
    return Forward(losses, lses, lse_lows, divisors, z_losses, predicted, entropies, gradient)


def backward(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    lse: torch.Tensor,
    lse_low: torch.Tensor,
    divisors: torch.Tensor,
    options: Options,
    grad_loss: torch.Tensor,
    grad_lse: torch.Tensor | None,
    gradient: Any = True,
) -> torch.Tensor:
    """The gradient for any incoming gradients, from the lse and lse_low that are given: they may be those of longer
    rows of which these are a part."""
    written, gradient = _gradient(logits, gradient)
    assert written is not None
    assert gradient is not None
    if logits.numel():
        compute = compute_dtype(logits.dtype)
        kernels.backward(
            _side_by_side(logits),
            _target(logits, target),
            weight,
            lse.to(compute).contiguous(),
            lse_low.to(compute).contiguous(),
            divisors,
            options,
            grad_loss.to(compute),
            None if grad_lse is None else grad_lse.to(compute),
            written,
        )
    return gradient if written is gradient else gradient.copy_(written)


@cache
def _rescale(device: int, dtype: torch.dtype) -> Loaded:
    macros = (("ELEMENT", NAMES[dtype]), ("COMPUTE", NAMES[compute_dtype(dtype)]))
    return load(device, Source("ops/cross_entropy/rescale.cu", "rescale", macros), 512)


def rescale(gradient: torch.Tensor, grad_loss: torch.Tensor) -> torch.Tensor:
    """`gradient` times a 0-d tensor, in place; nothing is touched when that is 1."""
    if not gradient.is_contiguous():
        return gradient.mul_(grad_loss.to(gradient.dtype))
    kernel = _rescale(gradient.get_device(), gradient.dtype)
    words = -(-gradient.numel() * gradient.element_size() // 16)
    if words:
        by = grad_loss.to(compute_dtype(gradient.dtype))
        kernel(min(-(-words // 512), kernel.resident), gradient.data_ptr(), gradient.numel(), by.data_ptr())
    return gradient

"""Cross-entropy on CUDA tensors.  Nothing here waits for the device: divisors and incoming gradients stay there."""

from __future__ import annotations

from typing import Any

import torch

from ..._cuda import ready
from ..._cuda.compile import Source
from ..._cuda.launch import launch_on, load, stream_here, stream_there
from ..._cuda.limits import device_limits
from ..._cuda.ready import Ready
from ..._cuda.rows import NAMES, compute_dtype
from . import batch, kernels
from .again import Call
from .batch import Batch
from .options import HEAD_BYTES, Forward, Options, Packed
from .totals import Totals

__all__ = ["again", "backward", "forward", "rescale"]


def _side_by_side(x: torch.Tensor) -> torch.Tensor:
    """The matrix with its columns next to each other: itself, or a copy."""
    return x if x.shape[1] <= 1 or x.stride(1) == 1 else x.contiguous()


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


def again(logits: torch.Tensor, target: torch.Tensor, options: Options, gradient: Any) -> Packed | None:
    """forward of a call like an earlier one, without weight, number of items and aux; None where it is the first.

    Whether target fits logits needs no check: it did.
    """
    of_logits = logits.get_device(), logits.dtype, logits.shape, logits.stride(), logits.data_ptr() % 16
    of_target = target.get_device(), target.dtype, target.shape, target.stride()
    call: Call | Batch | None = ready.find(("loss", of_logits, of_target, None, True, gradient, options))
    stream = None if call is None else stream_here(call.device)
    return None if call is None or stream is None else call(stream, logits, target, None, None)


def forward(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    num_items: Any,
    options: Options,
    *,
    aux: bool = False,
    gradient: Any = None,
) -> Forward | Packed:
    """Loss, row summaries and, if asked for, the gradient, from one read of the logits."""
    key = None
    if not aux and (gradient is None or gradient is True) and not isinstance(num_items, torch.Tensor):
        of_logits = logits.get_device(), logits.dtype, logits.shape, logits.stride(), logits.data_ptr() % 16
        of_target = target.get_device(), target.dtype, target.shape, target.stride()
        weights = None if weight is None else weight.data_ptr() % 16
        key = ("loss", of_logits, of_target, weights, num_items is None, gradient, options)  # as in again
        call: Call | Batch | None = ready.find(key)
        if call is None:
            call = batch.fitting(logits, target, weight, options, gradient is not None)
            if call is not None:
                ready.keep_any(key, call)
        if call is not None:
            stream = stream_here(call.device)
            if stream is not None:
                return call(stream, logits, target, weight, num_items)
            with stream_there(call.device) as stream:
                return call(stream, logits, target, weight, num_items)
    rows = logits.shape[0]
    compute = compute_dtype(logits.dtype)
    if gradient is not None and logits.dtype == torch.float64:
        # Checks of gradients are done in fp64 and demand equal bits of every backward: there is one way to make it.
        result = forward(logits, target, weight, num_items, options, aux=aux)
        one = torch.ones((), dtype=compute, device=logits.device)
        made = backward(logits, target, weight, *result.saved, options, one, None, gradient)
        return Forward(result.loss, *result.saved, result.z_loss, result.predicted, result.entropy, made)
    # Copies are made before anything is counted: the row kernel may read them while rows are being counted.
    given, target, beside = target, _target(logits, target), _side_by_side(logits)
    written, gradient = _gradient(logits, gradient)
    head = HEAD_BYTES // compute.itemsize
    packed = torch.empty(head + 3 * rows, dtype=compute, device=logits.device)
    out = packed[head:].view(3, rows)
    losses, lses, lse_lows = out[0], out[1], out[2]  # in less time than unbind
    more = (
        (torch.empty_like(losses), torch.empty_like(losses, dtype=torch.int64), torch.empty_like(losses))
        if aux
        else None
    )
    if options.reduction == "none":
        loss = losses.data  # no view for autograd, so that callers may change it in place
    else:
        loss = torch.empty_strided((), (), dtype=compute, device=logits.device)  # in half the time of torch.empty
    divisors, totals = packed[:2], Totals(beside, target, weight, num_items, options)
    weighed = totals.count(target, weight, num_items, divisors)
    launch: kernels.Again | None = None
    if logits.shape[1] == 0:  # no class: probabilities ask for nothing, an index for what is not there
        losses.fill_(0.0 if target.is_floating_point() else torch.nan)
        lses.fill_(-torch.inf)
        lse_lows.zero_()
    elif rows:
        at = totals.weighed_at(weight, weighed)
        launch = kernels.run(beside, target, weight, options, divisors, out, written, aux=more, weighed=at)
        if beside is not logits or target is not given:
            launch = None  # of copies
    if written is not gradient:
        gradient.copy_(written)
    if options.reduction != "none":
        totals.reduce(losses, lses, target, divisors, loss)
        if key is not None and launch is not None and totals.blocks == 1:
            ready.keep_any(key, Call(logits, packed, gradient is not None, totals, launch))
        if more is None:  # as from a kept call: checkpoints want what is computed again to be saved alike
            return Packed(loss, packed, gradient)
    z_losses, predicted, entropies = more or (None, None, None)
    return Forward(loss, lses, lse_lows, divisors, z_losses, predicted, entropies, gradient)


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
    of: tuple[int, int] | None = None,
) -> torch.Tensor:
    """The gradient for any incoming gradients, from the lse and lse_low that are given: they may be those of longer
    rows of which these are a part.  With `of`, (the first class here, how many there are), class indices and weight
    are those of the longer rows."""
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
            of,
        )
    return gradient if written is gradient else gradient.copy_(written)


_SCALED_AT_ONCE = 512  # threads of a block
MOST_SCALED_BY_TORCH = 2**16
"""Elements of a gradient that torch's multiplication scales: there one call is what counts."""


def _load_rescale(gradient: torch.Tensor) -> Ready:
    """The launch for gradients like this one."""
    dtype = gradient.dtype
    macros = (("ELEMENT", NAMES[dtype]), ("COMPUTE", NAMES[compute_dtype(dtype)]))
    source = Source("ops/cross_entropy/rescale.cu", "rescale", macros)
    kernel = load(gradient.get_device(), source, _SCALED_AT_ONCE, early=True)  # it waits before it does anything
    words = -(-gradient.numel() * gradient.element_size() // 16)
    blocks = min(-(-words // _SCALED_AT_ONCE), device_limits(gradient.get_device()).processors)
    return Ready(kernel, blocks, (gradient.numel(),))


def rescale(gradient: torch.Tensor, grad_loss: torch.Tensor) -> torch.Tensor:
    """`gradient` times a 0-d tensor, in place; nothing is touched when that is 1, unless little could be."""
    dtype, size = gradient.dtype, gradient.numel()
    if size <= MOST_SCALED_BY_TORCH and grad_loss.dtype is dtype:
        return gradient.mul_(grad_loss)  # the engine's thread has nothing of Python in its caches: one call
    device, grad_loss = gradient.get_device(), grad_loss.resolve_neg()
    if not gradient.is_contiguous():
        return gradient.mul_(grad_loss.to(dtype))
    if not size:
        return gradient
    if grad_loss.dtype is not (torch.float64 if dtype is torch.float64 else torch.float32):
        grad_loss = grad_loss.to(compute_dtype(dtype))
    key = ("rescale", device, dtype, size)
    launch: Ready | None = ready.find(key)
    if launch is None:
        launch = _load_rescale(gradient)
        ready.keep(key, launch)
    stream = stream_here(device) if launch.on else None
    if stream is None:
        launch.kernel(launch.grid, gradient.data_ptr(), grad_loss.data_ptr(), size)
    else:
        launch_on(stream, *launch.on, gradient.data_ptr(), grad_loss.data_ptr(), size)
    return gradient

"""Cross-entropy of tensors: when the gradient is made, and how autograd gets it.

For "mean" and "sum" in bf16, fp32 and fp64 the gradient is made in forward, in the pass that makes the loss.  The first
backward hands that buffer out, scaled in place; a later one recomputes from the logits, held by reference.  For fp16
(a gradient divided by N before loss scaling underflows) and for "none", forward keeps each row's log-sum-exp and
backward forms the gradient, the incoming one applied before the single rounding.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..._arrays import namespace
from ..._dispatch import implementation, implementation_on
from ..._out import shares_memory_with_itself
from .._torch import (
    in_transform,
    is_ordinary,
    is_plain,
    records,
    stored,
    undecorated_apply,
    undecorated_backward,
)
from . import torch_operator
from .arguments import Prepared, check_range
from .gradient import gradient_rows
from .options import Forward, Options, Packed, Saved
from .terms import capped

# Found once: in a step whose backward runs on another thread, every look-up finds cold caches.
_INDEX, _HALF, _STRIDED = torch.int64, torch.float16, torch.strided
_grad_enabled = torch.is_grad_enabled

__all__ = ["are_rows_and_indices", "cross_entropy", "loss_of_rows", "operators"]


def _fit(input: Tensor, target: Tensor) -> bool:
    """Whether the logits are (M, C), with M class indices beside them."""
    return (
        input.ndim == 2
        and target.ndim == 1
        and target.shape[0] == input.shape[0]
        and target.get_device() == input.get_device()
        and target.is_cuda == input.is_cuda
    )


def are_rows_and_indices(input: Any, target: Any) -> bool:
    """Whether these are ordinary (M, C) logits and, beside them, M class indices of int64."""
    return (
        is_ordinary(input)
        and type(target) is Tensor
        and target.dtype is _INDEX
        and target.layout is _STRIDED
        and not (target.is_nested or target.is_meta)
        and not in_transform(target)  # as is_ordinary asks of input
        and _fit(input, target)
    )


def loss_of_rows(logits: Any, target: Any, options: Options, impl: str) -> Tensor | None:
    """The loss of what `are_rows_and_indices` passes, with nothing else asked for; None for all else."""
    # As are_rows_and_indices, but that a call like an earlier one needs not ask whether target fits.
    if not (
        is_ordinary(logits)
        and type(target) is Tensor
        and target.dtype is _INDEX
        and target.layout is _STRIDED
        and not (target.is_nested or target.is_meta)
        and not in_transform(target)
    ):
        return None
    module = implementation_on("cross_entropy", logits, impl)
    recorded = logits.requires_grad and _grad_enabled()
    again = getattr(module, "again", None)
    result: Any = None
    if again is not None:
        made = recorded and options.reduction != "none" and logits.dtype is not _HALF  # made_in_forward
        result = again(logits, target, options, made or None)
    if result is None:
        if not _fit(logits, target):
            return None
        if logits.is_cpu:
            check_range(target, logits.shape[1], options.ignore_index, target.shape)
        if not recorded:
            result = module.forward(logits, target, None, None, options)
    how = None, options, False, False, module, result
    loss: Tensor = _recorded(logits, target, None, how) if recorded else result.loss
    return loss


def operators(logits: Tensor, impl: str) -> torch_operator.Operators | None:
    """What stands in for an implementation under torch.compile, and for fake and subclass tensors."""
    compiled = type(logits) is not Tensor or torch.compiler.is_compiling()
    return torch_operator.Operators(impl) if compiled else None


def cross_entropy(ready: Prepared, input: Tensor, inplace: bool, aux: bool, impl: str) -> Forward | Packed:
    """The loss of checked arguments, recorded by autograd where it should be; `input` is what the caller passed."""
    logits, target, weight, num_items, options, *_ = ready
    plain = is_plain(logits, target, weight, num_items if isinstance(num_items, Tensor) else None)
    if inplace:
        _check_inplace(input, logits, plain)
    if not plain:
        return torch_operator.call(logits, target, weight, num_items, options, aux, impl)
    if logits.is_cpu:
        check_range(target, logits.shape[1], options.ignore_index, ready.shape)
    module = implementation("cross_entropy", logits, impl)
    if not records(logits, target):
        result: Forward | Packed = module.forward(logits, target, weight, num_items, options, aux=aux)
        return result
    outputs = _CrossEntropy.apply(logits, target, weight, (num_items, options, inplace, aux, module, None))
    if not aux:
        return Forward(outputs, *(None,) * 7)
    loss, lse, z_loss, predicted, entropy = outputs
    return Forward(loss, lse, None, None, z_loss, predicted, entropy, None)


def _check_inplace(input: Tensor, logits: Tensor, plain: bool) -> None:
    """Refuse the logits that a gradient must not overwrite; nothing has been written yet."""
    if not plain:
        raise ValueError("inplace=True is for ordinary tensors in eager mode; a compiler plans memory by itself")
    if not records(input):
        raise ValueError("inplace=True, but autograd records nothing here: input does not require grad, or no_grad")
    base = input._base
    if input.is_leaf or (base is not None and base.is_leaf and base.requires_grad):
        raise ValueError("inplace=True would overwrite a leaf that requires grad: pass an intermediate result")
    if shares_memory_with_itself(input.shape, input.stride(), 1):
        raise ValueError(f"inplace=True, but elements of input share memory (strides {input.stride()})")
    if logits.numel() and logits.untyped_storage().data_ptr() != input.untyped_storage().data_ptr():
        raise ValueError(
            f"inplace=True, but input of shape {tuple(input.shape)} has strides {input.stride()}; wanted classes that "
            "are last in memory, such as those of logits (N, d1, …, C) that are given as logits.movedim(-1, 1)"
        )


class _CrossEntropy(torch.autograd.Function):
    """Eager autograd; gives the loss, and with aux (loss, lse, z_loss, predicted, entropy)."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        how: tuple[Any, Options, bool, bool, ModuleType, Packed | None],
    ) -> Any:
        num_items, options, inplace, aux, module, result = how
        soft = False
        if result is None:
            wanted, soft, *_ = ctx.needs_input_grad
            # With aux, a gradient may come into lse too, and needs the logits: in place they must last until backward.
            early = wanted and made_in_forward(logits, options) and not (inplace and aux)
            into = (logits.detach() if inplace else True) if early else None
            result = module.forward(logits, target, weight, num_items, options, aux=aux, gradient=into)
        ctx.gradient = result.gradient
        ctx.how = options, inplace, module, soft
        if inplace:
            ctx.overwritten = early
            if early:
                torch.autograd.graph.increment_version(logits)
        ctx.save_for_backward(None if inplace and early else logits, target, weight, *result.to_keep)
        ctx.set_materialize_grads(False)
        if not aux:
            return result.loss
        ctx.mark_non_differentiable(result.z_loss, result.predicted, result.entropy)
        return result.loss, result.lse, result.z_loss, result.predicted, result.entropy

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, grad_lse: Tensor | None = None, *_: Any) -> Any:
        again = _grad_enabled()  # create_graph=True: the gradient itself is to be differentiated
        options, inplace, module, soft = ctx.how
        gradient = ctx.gradient
        alone = grad_loss is not None and grad_lse is None and not (soft and ctx.needs_input_grad[1])
        if gradient is not None and alone and not again:
            ctx.gradient = None
            return module.rescale(gradient, stored(grad_loss)), None, None, None
        wanted, wanted_target, *_ = ctx.needs_input_grad
        if grad_loss is None and grad_lse is None:
            return None, None, None, None
        grad_loss, grad_lse = stored(grad_loss), stored(grad_lse)
        if inplace and (ctx.overwritten or again or wanted_target):
            raise RuntimeError(
                "cross_entropy(inplace=True) has given the logits' memory to the first gradient: a second backward, "
                "second derivatives and gradients of probability targets need inplace=False"
            )
        logits, target, weight, *rest = ctx.saved_tensors
        saved = Saved.kept(rest)
        if grad_loss is None:
            saved, grad_loss = without_loss(saved, options.reduction)
        if again or wanted_target:
            given = target, weight, saved.divisors, options, grad_loss, grad_lse
            dx = differentiable_gradient(logits, *given) if wanted else None
            dq = target_gradient(logits, *given[:-1]) if wanted_target else None
            return dx, dq, None, None
        into: Any = ctx.gradient if ctx.gradient is not None else True
        ctx.gradient = None
        if inplace:
            into, ctx.overwritten = logits.detach(), True
        dx = module.backward(logits.detach(), target, weight, *saved, options, grad_loss, grad_lse, into)
        if inplace:
            torch.autograd.graph.increment_version(logits)
        return dx, None, None, None


_recorded = undecorated_apply(_CrossEntropy)
undecorated_backward(_CrossEntropy)


def made_in_forward(logits: Tensor, options: Options) -> bool:
    """Whether the gradient comes from the loss's own pass."""
    return options.reduction != "none" and logits.dtype != torch.float16


def without_loss(saved: Saved, reduction: str) -> tuple[Saved, Tensor]:
    """Where a gradient comes into lse alone: 0 comes into the loss, which nothing divides, for 0 / NaN would be NaN."""
    zero = saved.lse.new_zeros(saved.lse.shape if reduction == "none" else ())
    return saved._replace(divisors=torch.ones_like(saved.divisors)), zero


def differentiable_gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    divisors: Tensor,
    options: Options,
    grad_loss: Tensor,
    grad_lse: Tensor | None,
) -> Tensor:
    """The gradient of the logits in torch's own operations, so that it can be differentiated again."""
    xp = namespace(logits)
    lse = torch.logsumexp(capped(xp, logits.to(divisors.dtype), options), -1)
    saved = Saved(lse, torch.zeros_like(lse), divisors)
    dx: Tensor = gradient_rows(xp, logits, target, weight, saved, options, grad_loss, grad_lse)
    return dx.to(logits.dtype)


def target_gradient(
    logits: Tensor, target: Tensor, weight: Tensor | None, divisors: Tensor, options: Options, grad_loss: Tensor
) -> Tensor:
    """The gradient of probability targets: A (1 − ε) w (lse − x)."""
    x: Tensor = capped(namespace(logits), logits.to(divisors.dtype), options)
    share = grad_loss.reshape(-1, 1) / divisors[0]
    dq = share * (1.0 - options.label_smoothing) * (torch.logsumexp(x, -1, keepdim=True) - x)
    return (dq if weight is None else dq * weight).to(target.dtype)

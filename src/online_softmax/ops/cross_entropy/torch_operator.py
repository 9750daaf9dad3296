"""Cross-entropy as a torch operator: for torch.compile, and for fake and subclass tensors.

The operator returns the gradient as an output of its own, so that a compiler sees it and may scale it in place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..._dispatch import implementation
from .._torch import LIBRARY, define, once, own, records
from .arguments import check_range
from .options import Forward, Options, Saved

_OPTIONS = "int ignore_index, str reduction, float label_smoothing, float scale, float? softcap, float z_loss"


def call(
    logits: Tensor, target: Tensor, weight: Tensor | None, num_items: Any, options: Options, aux: bool, impl: str
) -> Forward:
    """The loss by way of the operator."""
    from .torch_op import made_in_forward

    early = records(logits) and made_in_forward(logits, options)
    return Operators(impl).forward(logits, target, weight, num_items, options, aux=aux, gradient=early or None)


class Operators:
    """The operators, with the functions of an implementation."""

    def __init__(self, impl: str) -> None:
        self.impl = impl

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        num_items: Any,
        options: Options,
        *,
        aux: bool,
        gradient: bool | None,
    ) -> Forward:
        """Loss, lse and what else is asked for."""
        given = items_and_count(num_items, logits)
        early = gradient is True
        outputs = torch.ops.online_softmax.cross_entropy(
            logits, target, weight, *given, *options, aux, early, self.impl
        )
        loss, lse, *others = outputs
        return Forward(loss, lse, *(other.detach() for other in others))

    def backward(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        lse: Tensor,
        lse_low: Tensor,
        divisors: Tensor,
        options: Options,
        grad_loss: Tensor,
        grad_lse: Tensor | None,
    ) -> Tensor:
        """The gradient of the logits."""
        saved = lse, lse_low, divisors
        dx: Tensor = torch.ops.online_softmax.cross_entropy_backward(
            logits, target, weight, *saved, grad_loss, grad_lse, *options, self.impl
        )
        return dx


def items_and_count(num_items: Any, logits: Tensor) -> tuple[Tensor | None, float | None]:
    """num_items as the operators take it; one of both is None."""
    if num_items is not None and torch.compiler.is_compiling() and not isinstance(num_items, Tensor):
        # A number would become a part of the graph, and each other number one more compilation.
        compute = torch.float64 if logits.dtype == torch.float64 else torch.float32
        num_items = torch.ones((), dtype=compute, device=logits.device) * num_items  # torch.full fixes it too
    return (num_items, None) if isinstance(num_items, Tensor) else (None, num_items)


def _run(
    logits: Tensor, target: Tensor, weight: Tensor | None, items: Tensor | None, count: float | None, *settings: Any
) -> tuple[Tensor, ...]:
    *each, aux, early, impl = settings
    options = Options(*each)
    if logits.device.type == "cpu":
        check_range(target, logits.shape[1], options.ignore_index, tuple(target.shape))
    result = implementation("cross_entropy", logits, impl).forward(
        logits, target, weight, count if items is None else items, options, aux=aux, gradient=True if early else None
    )
    none = logits.new_empty(0)
    return tuple(none.clone() if part is None else own(part) for part in result)


def _fake(logits: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *each, aux, early, _ = rest[4:]
    compute = torch.float64 if logits.dtype == torch.float64 else torch.float32
    rows = logits.new_empty(logits.shape[:1], dtype=compute)
    loss = torch.empty_like(rows) if Options(*each).reduction == "none" else rows.new_empty(())
    extra = [torch.empty_like(rows), torch.empty_like(rows, dtype=torch.int64), torch.empty_like(rows)]
    if not aux:
        extra = [logits.new_empty(0) for _ in extra]
    gradient = logits.new_empty(logits.shape) if early else logits.new_empty(0)
    return loss, rows, torch.empty_like(rows), rows.new_empty(2), *extra, gradient


def _run_backward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    lse: Tensor,
    lse_low: Tensor,
    divisors: Tensor,
    grad_loss: Tensor,
    grad_lse: Tensor | None,
    *settings: Any,
) -> Tensor:
    *each, impl = settings
    module = implementation("cross_entropy", logits, impl)
    dx: Tensor = module.backward(logits, target, weight, lse, lse_low, divisors, Options(*each), grad_loss, grad_lse)
    return dx


def _fake_backward(logits: Tensor, *_: Any) -> Tensor:
    return logits.new_empty(logits.shape)


_FORWARD = define(
    "cross_entropy(Tensor logits, Tensor target, Tensor? weight, Tensor? items, float? count, "
    f"{_OPTIONS}, bool aux, bool early, str impl) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _run,
    _fake,
)
_BACKWARD = define(
    "cross_entropy_backward(Tensor logits, Tensor target, Tensor? weight, Tensor lse, Tensor lse_low, "
    f"Tensor divisors, Tensor grad_loss, Tensor? grad_lse, {_OPTIONS}, str impl) -> Tensor",
    _run_backward,
    _fake_backward,
)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    logits, target, weight = inputs[:3]
    result = Forward(*output)
    *options, _, early, impl = inputs[5:]
    ctx.save_for_backward(logits, target, weight, *result.saved, result.gradient)
    ctx.how = options, early, impl
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_loss: Tensor | None, grad_lse: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    from .torch_op import target_gradient, without_loss

    logits, target, weight, *rest, gradient = ctx.saved_tensors
    saved = Saved(*rest)
    options, early, impl = ctx.how
    if grad_loss is None and grad_lse is None:
        return (None,) * 14
    if grad_loss is None:
        saved, grad_loss = without_loss(saved, options[1])
    # With create_graph=True by way of the operator, which answers a second derivative with an error.
    if early and grad_lse is None and not torch.is_grad_enabled():
        dx = (gradient * grad_loss).to(logits.dtype)
    else:
        dx = Operators(impl).backward(logits, target, weight, *saved, Options(*options), grad_loss, grad_lse)
    dq = None
    if ctx.needs_input_grad[1]:
        dq = target_gradient(logits, target, weight, saved.divisors, Options(*options), grad_loss)
    return dx, dq, *(None,) * 12


torch.library.register_autograd(_FORWARD, _backward, setup_context=_setup, lib=LIBRARY)
torch.library.register_autograd(_BACKWARD, once, lib=LIBRARY)

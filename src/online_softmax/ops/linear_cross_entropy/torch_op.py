"""Linear + cross-entropy of tensors: when the gradients are made, and how autograd gets them.

For "mean" and "sum" in bf16, fp32 and fp64, with memory="fast", forward makes the gradients that are asked for, three
products in all.  The first backward hands them out, scaled in place.  A later one, a gradient into lse, "none", fp16
and memory="least" make them in backward, from logits computed again: one product more, or with "least", which keeps
its last chunk, less than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..._dispatch import implementation
from .._torch import is_plain, records, stored, without_autocast
from ..cross_entropy.options import Forward, Options, Saved
from ..cross_entropy.torch_op import without_loss
from . import compute, products, torch_operator
from .api import check
from .arguments import Prepared
from .last_chunk import LastChunk
from .problem import LinearCrossEntropyGrads, Problem, Wanted


def linear_cross_entropy(ready: Prepared, aux: bool, impl: str) -> Forward:
    """The loss of checked arguments, recorded by autograd where it should be."""
    items = ready.num_items if isinstance(ready.num_items, Tensor) else None
    given = ready.input, ready.linear_weight, ready.linear_bias
    if not is_plain(*given, ready.target, ready.weight, items):
        return torch_operator.call(ready, aux, impl)
    check(ready)
    if not records(*given):
        return without_autograd(ready, aux, None, False, impl)
    outputs = _LinearCrossEntropy.apply(*given, ready, aux, impl)
    if not aux:
        return Forward(outputs, *(None,) * 7)
    loss, lse, z_loss, predicted, entropy = outputs
    return Forward(loss, lse, None, None, z_loss, predicted, entropy, None)


def with_grads(ready: Prepared, aux: bool, wanted: Wanted, impl: str) -> Forward:
    """Loss and gradients in one call, nothing recorded."""
    if not is_plain(ready.input, ready.linear_weight, ready.target):
        return torch_operator.call_with_grads(ready, aux, wanted, impl)
    check(ready)
    return without_autograd(ready, aux, wanted, True, impl)


def without_autograd(
    ready: Prepared, aux: bool, wanted: Wanted | None, early: bool, impl: str, last: LastChunk | None = None
) -> Forward:
    """The computation itself, forwards."""
    with _plainly(ready):
        return compute.forward(problem(ready, impl), aux, wanted, early, last)


@contextmanager
def _plainly(ready: Prepared) -> Iterator[None]:
    """Neither autograd nor autocast looks on."""
    with torch.no_grad(), without_autocast(ready.input.device.type):
        yield


def problem(ready: Prepared, impl: str) -> Problem:
    """Tensors outside autograd, in the dtype that products are made in."""
    given = ready.input, ready.linear_weight, ready.linear_bias
    dtypes = [None if tensor is None else tensor.dtype for tensor in given]
    x, w, b = (None if tensor is None else tensor.detach() for tensor in given)
    if any(dtype is not None and dtype != ready.dtype for dtype in dtypes):
        x, w, b = (None if tensor is None else tensor.to(ready.dtype) for tensor in (x, w, b))
    module = implementation("cross_entropy", x, impl)
    constants = ready.target, ready.weight, ready.num_items, ready.options
    x, w = products.ready(x), products.ready(w)
    return Problem(x, w, b, *constants, module, ready.chunk_rows, ready.memory, dtypes, True)


def made_in_forward(dtype: torch.dtype, options: Options, memory: str) -> bool:
    """Whether the gradients come with the loss."""
    return options.reduction != "none" and dtype != torch.float16 and memory != "least"


class _LinearCrossEntropy(torch.autograd.Function):
    """Eager autograd; gives the loss, and with aux (loss, lse, z_loss, predicted, entropy)."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        linear_weight: Tensor,
        linear_bias: Tensor | None,
        ready: Prepared,
        aux: bool,
        impl: str,
    ) -> Any:
        wanted = Wanted(*ctx.needs_input_grad[:3])
        early = made_in_forward(ready.dtype, ready.options, ready.memory)
        ctx.last = LastChunk() if ready.memory == "least" else None
        result = without_autograd(ready, aux, wanted, early, impl, ctx.last)
        ctx.gradients = result.gradient
        ctx.save_for_backward(input, linear_weight, linear_bias, ready.target, ready.weight, *result.saved)
        ctx.how = ready._replace(input=None, linear_weight=None, linear_bias=None, target=None, weight=None), aux, impl
        ctx.set_materialize_grads(False)
        if not aux:
            return result.loss
        ctx.mark_non_differentiable(result.z_loss, result.predicted, result.entropy)
        return result.loss, result.lse, result.z_loss, result.predicted, result.entropy

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, grad_lse: Tensor | None = None, *_: Any) -> Any:
        if grad_loss is None and grad_lse is None:
            return (None,) * 6
        grad_loss, grad_lse = stored(grad_loss), stored(grad_lse)
        if torch.is_grad_enabled():
            raise RuntimeError(
                "linear_cross_entropy has no second derivative (create_graph=True): "
                "use online_softmax.cross_entropy on torch.nn.functional.linear's logits"
            )
        ready, aux, impl = ctx.how
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is not None and grad_lse is None:
            rescale = implementation("cross_entropy", grad_loss, impl).rescale
            return *scaled(gradients, lambda gradient: rescale(gradient, grad_loss)), None, None, None
        del gradients
        input, linear_weight, linear_bias, target, weight, *saved = ctx.saved_tensors
        ready = ready._replace(
            input=input, linear_weight=linear_weight, linear_bias=linear_bias, target=target, weight=weight
        )
        wanted = Wanted(*ctx.needs_input_grad[:3])
        return *late(ready, aux, Saved(*saved), grad_loss, grad_lse, wanted, impl, ctx.last), None, None, None


def scaled(gradients: LinearCrossEntropyGrads, scale: Callable[[Tensor], Tensor]) -> LinearCrossEntropyGrads:
    """Each of the gradients that are there, scaled."""
    return LinearCrossEntropyGrads(*(None if gradient is None else scale(gradient) for gradient in gradients))


def late(
    ready: Prepared,
    aux: bool,
    saved: Saved,
    grad_loss: Tensor | None,
    grad_lse: Tensor | None,
    wanted: Wanted,
    impl: str,
    last: LastChunk | None = None,
) -> LinearCrossEntropyGrads:
    """Gradients from logits computed again."""
    if grad_loss is None:
        saved, grad_loss = without_loss(saved, ready.options.reduction)
    with _plainly(ready):
        return compute.backward(problem(ready, impl), aux, saved, grad_loss, grad_lse, wanted, last)

"""Linear + cross-entropy as a torch operator: for torch.compile, and for fake and subclass tensors.

The operator returns the gradients as outputs of its own, so that a compiler sees them and may scale them in place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._torch import LIBRARY, define, own
from ..cross_entropy.options import Forward, Options, Saved
from ..cross_entropy.torch_operator import items_and_count
from .api import check
from .arguments import Prepared
from .problem import LinearCrossEntropyGrads, Wanted

_TENSORS = "Tensor input, Tensor linear_weight, Tensor? linear_bias, Tensor target, Tensor? weight"
_SETTINGS = (
    "int ignore_index, str reduction, float label_smoothing, float scale, float? softcap, float z_loss, "
    "int? chunk_rows, str memory, ScalarType dtype, bool aux, bool[] wanted, str impl"
)
_OPTIONS = len(Options._fields)


def call(ready: Prepared, aux: bool, impl: str) -> Forward:
    """The loss by way of the operator."""
    given = ready.input, ready.linear_weight, ready.linear_bias
    wanted = [torch.is_grad_enabled() and tensor is not None and tensor.requires_grad for tensor in given]
    result = _call(ready, _settings(ready, aux, wanted, impl))
    return Forward._make((*result[:7], None))


def call_with_grads(ready: Prepared, aux: bool, wanted: Wanted, impl: str) -> Forward:
    """The loss and its gradients by way of the operators; nothing is recorded."""
    settings = _settings(ready, aux, list(wanted), impl)
    with torch.no_grad():
        result = _call(ready, settings)
        found = result[7:]
        if not _early(ready.dtype, ready.options, ready.memory, wanted):
            one = torch.ones_like(result[0])
            found = torch.ops.online_softmax.linear_cross_entropy_backward(
                *_tensors(ready), *result[1:4], one, None, *settings
            )
    gradients = (gradient if want else None for gradient, want in zip(found, wanted, strict=True))
    return Forward._make((*result[:7], LinearCrossEntropyGrads(*gradients)))


def _call(ready: Prepared, settings: tuple[Any, ...]) -> Any:
    divisor = items_and_count(ready.num_items, ready.input)
    return torch.ops.online_softmax.linear_cross_entropy(*_tensors(ready), *divisor, *settings)


def _tensors(ready: Prepared) -> tuple[Any, ...]:
    return ready.input, ready.linear_weight, ready.linear_bias, ready.target, ready.weight


def _settings(ready: Prepared, aux: bool, wanted: list[bool], impl: str) -> tuple[Any, ...]:
    return *ready.options, ready.chunk_rows, ready.memory, ready.dtype, aux, wanted, impl


def _ready(tensors: Any, num_items: Any, settings: Any) -> Prepared:
    input, linear_weight, linear_bias, target, weight = tensors
    options = Options(*settings[:_OPTIONS])
    chunk_rows, memory, dtype = settings[_OPTIONS : _OPTIONS + 3]
    batch = tuple(target.shape[:1])
    return Prepared(
        input, linear_weight, linear_bias, target, weight, num_items, options, chunk_rows, memory, batch, dtype
    )


def _early(dtype: torch.dtype, options: Options, memory: str, wanted: Any) -> bool:
    from .torch_op import made_in_forward

    return any(wanted) and made_in_forward(dtype, options, memory)


def _run(*arguments: Any) -> tuple[Tensor, ...]:
    from .torch_op import without_autograd

    *tensors, items, count = arguments[:7]
    settings = arguments[7:]
    aux, wanted, impl = settings[-3:]
    ready = _ready(tensors, count if items is None else items, settings)
    check(ready)
    early = _early(ready.dtype, ready.options, ready.memory, wanted)
    result = without_autograd(ready, aux, Wanted(*wanted) if any(wanted) else None, early, impl)
    gradients = result.gradient or (None, None, None)
    none = result.lse.new_empty(0)
    return tuple(none.clone() if part is None else own(part) for part in (*result[:7], *gradients))


def _fake(*arguments: Any) -> tuple[Tensor, ...]:
    input, linear_weight, linear_bias = arguments[:3]
    settings = arguments[7:]
    aux, wanted, _ = settings[-3:]
    ready = _ready(arguments[:5], None, settings)
    compute = torch.float64 if ready.dtype == torch.float64 else torch.float32
    rows = input.new_empty(input.shape[:1], dtype=compute)
    loss = torch.empty_like(rows) if ready.options.reduction == "none" else rows.new_empty(())
    extra = [torch.empty_like(rows), torch.empty_like(rows, dtype=torch.int64), torch.empty_like(rows)]
    if not aux:
        extra = [rows.new_empty(0) for _ in extra]
    early = _early(ready.dtype, ready.options, ready.memory, wanted)
    gradients = [
        tensor.new_empty(tensor.shape) if early and want else rows.new_empty(0)
        for tensor, want in zip((input, linear_weight, linear_bias), wanted, strict=True)
    ]
    return loss, rows, torch.empty_like(rows), rows.new_empty(2), *extra, *gradients


def _run_backward(*arguments: Any) -> tuple[Tensor, ...]:
    from .torch_op import late

    saved, (grad_loss, grad_lse) = Saved(*arguments[5:8]), arguments[8:10]
    settings = arguments[10:]
    aux, wanted, impl = settings[-3:]
    ready = _ready(arguments[:5], None, settings)
    gradients = late(ready, aux, saved, grad_loss, grad_lse, Wanted(*wanted), impl)
    return tuple(saved.lse.new_empty(0) if gradient is None else gradient for gradient in gradients)


def _fake_backward(*arguments: Any) -> tuple[Tensor, ...]:
    wanted, lse = arguments[-2], arguments[5]
    return tuple(
        tensor.new_empty(tensor.shape) if want else lse.new_empty(0)
        for tensor, want in zip(arguments[:3], wanted, strict=True)
    )


_FORWARD = define(
    f"linear_cross_entropy({_TENSORS}, Tensor? items, float? count, {_SETTINGS}) -> ({', '.join(['Tensor'] * 10)})",
    _run,
    _fake,
)
define(
    f"linear_cross_entropy_backward({_TENSORS}, Tensor lse, Tensor lse_low, Tensor divisors, Tensor grad_loss, "
    f"Tensor? grad_lse, {_SETTINGS}) -> (Tensor, Tensor, Tensor)",
    _run_backward,
    _fake_backward,
)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    _, lse, lse_low, divisors, _, _, _, *gradients = output
    ctx.save_for_backward(*inputs[:5], lse, lse_low, divisors, *gradients)
    ctx.settings = inputs[7:]
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_loss: Tensor | None, grad_lse: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    from ..cross_entropy.torch_op import without_loss
    from .torch_op import scaled

    settings = ctx.settings
    nothing = (None,) * (2 + 2 + len(settings))
    if grad_loss is None and grad_lse is None:
        return (None, None, None, *nothing)
    *tensors, of_input, of_weight, of_bias = ctx.saved_tensors
    saved = Saved(*tensors[5:])
    wanted = Wanted(*settings[-2])
    options, memory, dtype = Options(*settings[:_OPTIONS]), settings[_OPTIONS + 1], settings[_OPTIONS + 2]
    if grad_loss is None:
        saved, grad_loss = without_loss(saved, options.reduction)
    if _early(dtype, options, memory, wanted) and grad_lse is None:
        made = LinearCrossEntropyGrads(of_input, of_weight, of_bias)
        gradients = scaled(made, lambda gradient: (gradient * grad_loss).to(gradient.dtype))
    else:
        gradients = LinearCrossEntropyGrads(
            *torch.ops.online_softmax.linear_cross_entropy_backward(
                *tensors[:5], *saved, grad_loss, grad_lse, *settings
            )
        )
    asked = (gradient if want else None for gradient, want in zip(gradients, wanted, strict=True))
    return (*asked, *nothing)


torch.library.register_autograd(_FORWARD, _backward, setup_context=_setup, lib=LIBRARY)

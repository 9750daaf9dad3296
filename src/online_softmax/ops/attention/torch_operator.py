"""attention and merge_attention as torch operators: for torch.compile, and for fake and subclass tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..._dispatch import implementation
from .._torch import LIBRARY, define
from .options import Forward, Options

_OPTIONS = "float scale, bool causal, int? block, str impl"


def call_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, options: Options, impl: str
) -> tuple[Tensor, Tensor]:
    """(out, lse) by way of the operator."""
    out, lse, _ = torch.ops.online_softmax.attention(q, k, v, mask, *options, impl)
    return out, lse


def _merge(outs: Sequence[Tensor], lses: Sequence[Tensor], impl: str) -> tuple[Tensor, Tensor]:
    out, lse = implementation("attention", outs[0], impl).merge(outs, lses)
    return out, lse


def _fake_merge(outs: Sequence[Tensor], lses: Sequence[Tensor], impl: str) -> tuple[Tensor, Tensor]:
    return outs[0].new_empty(outs[0].shape), lses[0].new_empty(lses[0].shape)


def _merge_backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    outs: Sequence[Tensor],
    lses: Sequence[Tensor],
    out: Tensor,
    lse: Tensor,
    impl: str,
) -> tuple[list[Tensor], list[Tensor]]:
    grads = [torch.empty_like(each) for each in outs], [torch.empty_like(each) for each in lses]
    implementation("attention", out, impl).merge_backward(grad_out, grad_lse, outs, lses, out, lse, *grads)
    return grads


def _fake_merge_backward(
    grad_out: Tensor, grad_lse: Tensor | None, outs: Sequence[Tensor], lses: Sequence[Tensor], *_: Any
) -> tuple[list[Tensor], list[Tensor]]:
    return [torch.empty_like(each) for each in outs], [torch.empty_like(each) for each in lses]


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scale: float,
    causal: bool,
    block: int | None,
    impl: str,
) -> tuple[Tensor, Tensor, Tensor]:
    result = implementation("attention", q, impl).attention(q, k, v, mask, Options(scale, causal, block))
    return result.out, result.lse, result.lse_low


def _fake_attention(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    lse = q.new_empty(q.shape[:-1], dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)
    return q.new_empty((*q.shape[:-1], v.shape[-1])), lse, torch.empty_like(lse)


def _attention_backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    out: Tensor,
    lse: Tensor,
    lse_low: Tensor,
    mask_wanted: bool,
    scale: float,
    causal: bool,
    block: int | None,
    impl: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_mask = torch.zeros(mask.shape, dtype=lse.dtype, device=q.device) if mask_wanted and mask is not None else None
    dq, dk, dv = implementation("attention", q, impl).attention_backward(
        grad_out, grad_lse, q, k, v, mask, Forward(out, lse, lse_low), Options(scale, causal, block), grad_mask
    )
    return dq, dk, dv, lse.new_empty(0) if grad_mask is None or mask is None else grad_mask.to(mask.dtype)


def _fake_attention_backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    out: Tensor,
    lse: Tensor,
    lse_low: Tensor,
    mask_wanted: bool,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_mask = mask.new_empty(mask.shape) if mask_wanted and mask is not None else lse.new_empty(0)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), grad_mask


_MERGE = define("merge_attention(Tensor[] outs, Tensor[] lses, str impl) -> (Tensor, Tensor)", _merge, _fake_merge)
define(
    "merge_attention_backward(Tensor grad_out, Tensor? grad_lse, Tensor[] outs, Tensor[] lses, Tensor out, Tensor lse, "
    "str impl) -> (Tensor[], Tensor[])",
    _merge_backward,
    _fake_merge_backward,
)
_ATTENTION = define(
    f"attention(Tensor q, Tensor k, Tensor v, Tensor? mask, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
    _attention,
    _fake_attention,
)
define(
    "attention_backward(Tensor grad_out, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor out, "
    f"Tensor lse, Tensor lse_low, bool mask_wanted, {_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor)",
    _attention_backward,
    _fake_attention_backward,
)


def _setup_merge(ctx: Any, inputs: Any, output: Any) -> None:
    outs, lses, impl = inputs
    ctx.save_for_backward(*output, *outs, *lses)
    ctx.how = len(outs), impl
    ctx.set_materialize_grads(False)


def _backward_merge(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> tuple[Any, Any, None]:
    count, impl = ctx.how
    out, lse, *tensors = ctx.saved_tensors
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    grads = torch.ops.online_softmax.merge_attention_backward(
        grad_out, grad_lse, tensors[:count], tensors[count:], out, lse, impl
    )
    return *grads, None


def _setup_attention(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, mask, *options = inputs
    ctx.save_for_backward(q, k, v, mask, *output)
    ctx.how = options
    ctx.set_materialize_grads(False)


def _backward_attention(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None, *_: Any) -> tuple[Any, ...]:
    q, k, v, mask, *result = ctx.saved_tensors
    if grad_out is None:
        grad_out = torch.zeros_like(result[0])
    wanted = ctx.needs_input_grad[3]
    dq, dk, dv, grad_mask = torch.ops.online_softmax.attention_backward(
        grad_out, grad_lse, q, k, v, mask, *result, wanted, *ctx.how
    )
    return dq, dk, dv, grad_mask if wanted else None, *(None,) * len(ctx.how)


torch.library.register_autograd(_MERGE, _backward_merge, setup_context=_setup_merge, lib=LIBRARY)
torch.library.register_autograd(_ATTENTION, _backward_attention, setup_context=_setup_attention, lib=LIBRARY)

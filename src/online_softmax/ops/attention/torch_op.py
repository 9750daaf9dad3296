"""attention and merge_attention of tensors: autograd, torch.compile and autocast around any implementation."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._arrays import namespace
from ..._dispatch import implementation
from .._torch import autocast_dtype, first_derivative_only, is_plain, records, refuse_transforms, stored
from . import torch_operator
from .arguments import Partials, Prepared, separate
from .options import Forward
from .steps import merge_weights


class _Layout(NamedTuple):
    """How partial results came: how many partial results, and whether outs and lses each are one stacked tensor."""

    partials: int
    outs_stacked: bool
    lses_stacked: bool

    def grouped(self, tensors: Any) -> tuple[Any, Any]:
        """outs and lses, each one stacked tensor or a list; Nones where there is no tensor."""
        split = 1 if self.outs_stacked else self.partials
        return self._group(tensors[:split], self.outs_stacked), self._group(tensors[split:], self.lses_stacked)

    def _group(self, tensors: Any, stacked: bool) -> Any:
        if not stacked:
            return list(tensors)
        return [None] * self.partials if tensors[0] is None else tensors[0]


def merge_attention(ready: Partials, impl: str) -> tuple[Tensor, Tensor]:
    """(out, lse) of checked partial results."""
    refuse_transforms()
    outs, lses = ready
    tensors = [*(outs if isinstance(outs, list) else [outs]), *(lses if isinstance(lses, list) else [lses])]
    if not is_plain(*tensors):
        apart = separate(outs), separate(lses)
        merged: tuple[Tensor, Tensor] = torch.ops.online_softmax.merge_attention(*apart, impl)
        return merged
    if records(*tensors):
        layout = _Layout(len(outs), not isinstance(outs, list), not isinstance(lses, list))
        merged = _Merge.apply(layout, impl, *tensors)
        return merged
    out, lse = implementation("attention", tensors[0], impl).merge(outs, lses)
    return out, lse


class _Merge(torch.autograd.Function):
    """Takes the tensors of outs, then those of lses."""

    @staticmethod
    def forward(ctx: Any, layout: _Layout, impl: str, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = implementation("attention", tensors[0], impl).merge(*layout.grouped(tensors))
        ctx.save_for_backward(out, lse, *tensors)
        ctx.how = layout, impl
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        layout, impl = ctx.how
        out, lse, *tensors = ctx.saved_tensors
        grad_out, grad_lse = map(stored, grads)
        if grad_out is None and grad_lse is None:
            return (None,) * (2 + len(tensors))
        if grad_out is None:
            grad_out = torch.zeros_like(out)
        if torch.is_grad_enabled():  # create_graph=True
            pairs = differentiable_merge_gradient(grad_out, grad_lse, *map(separate, layout.grouped(tensors)))
            stacked = (layout.outs_stacked, layout.lses_stacked)
            joined = [[torch.stack(part)] if one else part for part, one in zip(pairs, stacked, strict=True)]
            return None, None, *joined[0], *joined[1]
        filled = [
            torch.empty_like(tensor) if want else None
            for tensor, want in zip(tensors, ctx.needs_input_grad[2:], strict=True)
        ]
        module = implementation("attention", out, impl)
        module.merge_backward(grad_out, grad_lse, *layout.grouped(tensors), out, lse, *layout.grouped(filled))
        return None, None, *filled


def differentiable_merge_gradient(
    grad_out: Tensor, grad_lse: Tensor | None, outs: list[Tensor], lses: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """The gradients of outs and lses in torch's own operations, so that they can be differentiated again."""
    weights = merge_weights(namespace(outs[0]), lses)
    grad = grad_out.to(lses[0].dtype)
    wide = [torch.where((w == 0)[..., None], 0.0, out.to(w.dtype)) for w, out in zip(weights, outs, strict=True)]
    average = sum(w[..., None] * out for w, out in zip(weights, wide, strict=True))
    along = 0.0 if grad_lse is None else grad_lse
    grad_lses = [w * ((grad * (out - average)).sum(-1) + along) for w, out in zip(weights, wide, strict=True)]
    return [(w[..., None] * grad).to(outs[0].dtype) for w in weights], grad_lses


def attention(ready: Prepared, impl: str) -> tuple[Tensor, Tensor]:
    """(out, lse) of checked arguments."""
    q, k, v, mask, options, _ = ready
    kind = q.device.type
    cast = autocast_dtype(kind)
    if cast is not None and q.dtype != torch.float64:
        with torch.autocast(kind, enabled=False):
            return attention(ready._replace(q=q.to(cast), k=k.to(cast), v=v.to(cast)), impl)
    if not is_plain(q, k, v, mask):
        return torch_operator.call_attention(q, k, v, mask, options, impl)
    if records(q, k, v, mask):
        result: tuple[Tensor, Tensor] = _Attention.apply(q, k, v, mask, options, impl)
        return result
    out, lse, _ = implementation("attention", q, impl).attention(q, k, v, mask, options)
    return out, lse


class _Attention(torch.autograd.Function):
    """Saves the output and the log-sum-exp; backward computes the scores again, tile by tile."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, options: Any, impl: str
    ) -> tuple[Tensor, Tensor]:
        result = implementation("attention", q, impl).attention(q, k, v, mask, options)
        ctx.save_for_backward(q, k, v, mask, *result)
        ctx.how = options, impl
        ctx.set_materialize_grads(False)
        return result.out, result.lse

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> tuple[Any, ...]:
        q, k, v, mask, *result = ctx.saved_tensors
        options, impl = ctx.how
        if grad_out is None and grad_lse is None:
            return (None,) * 6
        if grad_out is None:
            grad_out = torch.zeros_like(result[0])
        grad_mask = None
        if ctx.needs_input_grad[3]:
            grad_mask = torch.zeros(mask.shape, dtype=result[1].dtype, device=mask.device)
        module = implementation("attention", q, impl)
        forward = Forward(*result)
        dq, dk, dv = module.attention_backward(grad_out, grad_lse, q, k, v, mask, forward, options, grad_mask)
        return dq, dk, dv, None if grad_mask is None else grad_mask.to(mask.dtype), None, None

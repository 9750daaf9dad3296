"""Attention and the merging of partial results on CUDA tensors.

torch's fused attention computes what it can: fp16 and bf16 by its flash kernel, fp32 by its memory-efficient one,
without masks.  Causal attention aligned to the last key is two of its calls, merged.  What it does not take (masks,
fp64, large heads) runs tile by tile in torch's own operations.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from . import steps, tiles
from .cuda_merge import merge, merge_backward
from .options import Forward, Options

__all__ = ["attention", "attention_backward", "merge", "merge_backward"]

_ATEN = torch.ops.aten
_LARGEST_HEAD = 256


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, options: Options) -> Forward:
    """softmax(scale · q kᵀ + mask) v."""
    if not _fused(q, k, v, mask):
        return tiles.forward(steps, q, k, v, mask, options)
    queries, keys = q.shape[-2], k.shape[-2]
    if not options.causal or queries == keys:
        out, lse = _forward(q, k, v, options.scale, options.causal)
    elif queries < keys:
        # All queries see the first keys; among the last ones they are the diagonal.
        early, late = slice(0, keys - queries), slice(keys - queries, keys)
        parts = [
            _forward(q, k[..., early, :], v[..., early, :], options.scale, False),
            _forward(q, k[..., late, :], v[..., late, :], options.scale, True),
        ]
        out, lse = merge([part[0] for part in parts], [part[1] for part in parts])
    else:
        # The first queries see nothing.
        blind = queries - keys
        out = q.new_zeros((*q.shape[:-1], v.shape[-1]))
        lse = torch.full(q.shape[:-1], -torch.inf, dtype=torch.float32, device=q.device)
        out[..., blind:, :], lse[..., blind:] = _forward(q[..., blind:, :], k, v, options.scale, True)
    return Forward(out, lse, torch.zeros_like(lse))


def attention_backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    result: Forward,
    options: Options,
    grad_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(dq, dk, dv)."""
    if not _fused(q, k, v, mask, 0 if grad_lse is None else 8):
        return tiles.backward(steps, grad_out, grad_lse, q, k, v, mask, result, options, grad_mask)
    queries, length = q.shape[-2], k.shape[-2]

    def run(rows: slice, columns: slice, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
        parts = [x[..., rows, :] for x in (grad_out, q, result.out)]
        along = None if grad_lse is None else grad_lse[..., rows]
        keys, values = k[..., columns, :], v[..., columns, :]
        lse = result.lse[..., rows]
        return _backward(parts[0], along, parts[1], keys, values, parts[2], lse, options.scale, causal)

    everything = slice(None)
    if not options.causal or queries == length:
        return run(everything, everything, options.causal)
    if queries < length:
        early = run(everything, slice(0, length - queries), False)
        late = run(everything, slice(length - queries, length), True)
        return early[0] + late[0], torch.cat([early[1], late[1]], -2), torch.cat([early[2], late[2]], -2)
    dq, dk, dv = run(slice(queries - length, queries), everything, True)
    return torch.cat([torch.zeros_like(q[..., : queries - length, :]), dq], -2), dk, dv


def _fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, more: int = 0) -> bool:
    """Whether torch's fused kernels take these arguments."""
    sizes = max(q.shape[-1], v.shape[-1]) + more
    empty = not (q.numel() and k.numel() and v.numel())
    return mask is None and q.dtype != torch.float64 and -(-sizes // 8) * 8 <= _LARGEST_HEAD and not empty


def _heads(q: Tensor) -> Tensor:
    """(B, K, G, L, ·) as (B, heads, L, ·)."""
    return q.flatten(1, 2)


def _padded(x: Tensor, size: int) -> Tensor:
    return F.pad(x, (0, size - x.shape[-1])) if x.shape[-1] < size else x


def _common(q: Tensor, k: Tensor, v: Tensor, more: int = 0) -> tuple[list[Tensor], int]:
    """The arguments with one head size, a multiple of eight, and equal heads where the kernel needs that."""
    size = -(-(max(q.shape[-1], v.shape[-1]) + more) // 8) * 8
    group = q.shape[2]
    pair = [x if q.dtype != torch.float32 or group == 1 else x.repeat_interleave(group, 1) for x in (k, v)]
    return [_padded(x, size) for x in (_heads(q), *pair)], size


def _forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    (q4, k4, v4), _ = _common(q, k, v)
    if q.dtype == torch.float32:
        out, lse, *_ = _ATEN._scaled_dot_product_efficient_attention(q4, k4, v4, None, True, 0.0, causal, scale=scale)
    else:
        out, lse, *_ = _ATEN._scaled_dot_product_flash_attention(q4, k4, v4, 0.0, causal, False, scale=scale)
    lse = lse[..., : q.shape[-2]]  # the efficient kernel rounds the number of queries up
    return out[..., : v.shape[-1]].unflatten(1, q.shape[1:3]), lse.unflatten(1, q.shape[1:3]).contiguous()


def _backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The fused kernels know nothing of a gradient into lse.

    It takes part in d scores = p · (d weights − δ), where δ = Σ grad_out · out − grad_lse, so it is given to them as
    two more columns of out (its rounded value and the rest), with 1 in grad_out and 0 in v.
    """
    more = 0 if grad_lse is None else 8
    (q4, k4, v4), size = _common(q, k, v, more)
    grad4, out4 = (_padded(_heads(x), size).contiguous() for x in (grad_out, out))
    if grad_lse is not None:
        column = size - 2
        along = _heads(grad_lse)
        rounded = along.to(out.dtype)
        grad4[..., column:] = 1.0
        out4[..., column] = -rounded
        out4[..., column + 1] = (rounded - along).to(out.dtype)
    lse4 = _heads(lse).contiguous()
    seed = offset = torch.zeros((), dtype=torch.int64, device=q.device)
    if q.dtype == torch.float32:
        lse4 = F.pad(lse4, (0, -lse4.shape[-1] % 32))
        grads = _ATEN._scaled_dot_product_efficient_attention_backward(
            grad4, q4, k4, v4, None, out4, lse4, seed, offset, 0.0, [True, True, True, False], causal, scale=scale
        )
    else:
        lengths = q4.shape[-2], k4.shape[-2]
        grads = _ATEN._scaled_dot_product_flash_attention_backward(
            grad4, q4, k4, v4, out4, lse4, None, None, *lengths, 0.0, causal, seed, offset, scale=scale
        )
    dq, dk, dv = grads[0][..., : q.shape[-1]], grads[1][..., : k.shape[-1]], grads[2][..., : v.shape[-1]]
    if dk.shape[1] != k.shape[1]:
        dk, dv = (x.unflatten(1, q.shape[1:3]).sum(2) for x in (dk, dv))
    return dq.unflatten(1, q.shape[1:3]), dk, dv

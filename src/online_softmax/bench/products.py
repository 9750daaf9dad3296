"""Operations around matrix products, linear_cross_entropy and attention: their inputs, truth and libraries."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

import online_softmax as osm

from .compiling import compiled
from .tables import OURS
from .workload import Workload

Function = Callable[..., torch.Tensor]
OPERATIONS = "linear_cross_entropy", "attention"
CHUNK_ROWS = 1024  # of logits or scores held in float64 at a time


def inputs(workload: Workload, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What the case's `x` and `weight` hold: hidden states and the layer's weight, or queries and [keys, values]."""
    generator = torch.Generator(device).manual_seed(0)
    dtype, size = getattr(torch, workload.dtype), workload.inner

    def normal(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device).normal_(generator=generator)

    if workload.operation == "attention":
        heads, length = max(1, workload.rows // workload.columns), workload.columns
        return normal(1, heads, length, size), normal(2, 1, heads, length, size)
    return normal(workload.rows, size), normal(workload.columns, size) * (3 * size**-0.5)


def truth(workload: Workload, x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> list[torch.Tensor]:
    """In float64: the loss and both gradients, or the attention."""
    x, weight = x.double(), weight.double()
    if workload.operation == "attention":
        return [F.scaled_dot_product_attention(x, weight[0], weight[1], is_causal=workload.variant == "causal")]
    dx, dw = torch.empty_like(x), torch.zeros_like(weight)
    loss = torch.zeros((), dtype=torch.float64, device=x.device)
    for start in range(0, len(x), CHUNK_ROWS):
        part = slice(start, start + CHUNK_ROWS)
        logits = x[part] @ weight.T
        log_p = logits.log_softmax(-1)
        index = target[part, None]
        loss -= log_p.gather(1, index).sum()
        p = log_p.exp_().scatter_add_(1, index, torch.full_like(index, -1, dtype=torch.float64)) / len(x)
        dx[part] = p @ weight
        dw += p.T @ x[part]
    return [loss / len(x), dx, dw]


def losses() -> dict[str, Function]:
    """Functions of hidden states, weight and target that give the mean loss, by library."""

    def plain(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x @ weight.T, target)

    functions: dict[str, Function] = {
        OURS: osm.linear_cross_entropy,
        "torch": plain,
        "torch.compile": compiled(plain),
    }
    if hasattr(F, "linear_cross_entropy"):  # torch 2.13
        functions["torch fused"] = F.linear_cross_entropy
    return functions


def attentions(causal: bool) -> dict[str, Function]:
    """Functions of queries, keys and values, by library."""

    def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1), -torch.inf)
        return torch.softmax(scores, -1) @ v

    return {
        OURS: lambda q, k, v: osm.attention(q, k, v, causal=causal),
        "torch": plain,
        "torch fused": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
    }

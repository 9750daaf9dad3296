"""The parts of a training step under comparison: the loss and its gradient, and the last layer with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

import online_softmax

LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "online-softmax": online_softmax.cross_entropy,
    "torch": torch.nn.functional.cross_entropy,
}


def _torch_head(
    features: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, linear_bias: torch.Tensor
) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(torch.nn.functional.linear(features, weight, linear_bias), target)


HEADS: dict[str, Callable[..., torch.Tensor]] = {
    "online-softmax": online_softmax.linear_cross_entropy,
    "torch": _torch_head,
}


class Step(NamedTuple):
    """A loss, its gradient with respect to the logits, and the seconds that both took."""

    loss: float
    gradient: torch.Tensor
    seconds: float


def loss_step(library: str, logits: torch.Tensor, target: torch.Tensor) -> Step:
    """Loss and gradient by one library."""
    leaf = logits.detach().requires_grad_()
    start = time.perf_counter()
    loss = LOSSES[library](leaf, target)
    loss.backward()
    seconds = time.perf_counter() - start
    assert leaf.grad is not None
    return Step(loss.item(), leaf.grad, seconds)


def prepare(library: str, rows: int, columns: int) -> Callable[[], Step]:
    """The step on random logits of a given size, for measuring its memory in a process of its own."""
    logits = torch.randn(rows, columns)
    target = torch.randint(columns, (rows,))
    return lambda: loss_step(library, logits, target)


def prepare_head(library: str, rows: int, features: int, columns: int) -> Callable[[], torch.Tensor]:
    """The last layer, the loss and all gradients on random features of a given size, for measuring their memory."""
    inputs = torch.randn(rows, features, requires_grad=True)
    layer = torch.nn.Linear(features, columns)
    target = torch.randint(columns, (rows,))

    def step() -> torch.Tensor:
        loss = HEADS[library](inputs, layer.weight, target, linear_bias=layer.bias)
        loss.backward()
        return loss.detach()

    return step

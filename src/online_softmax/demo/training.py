"""Trains the demo's model: embedding, one hidden layer, and an output over the whole vocabulary."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from .loss_step import HEADS, LOSSES, Step, loss_step
from .text import CONTEXT, Text, windows

BATCH = 2048
EMBEDDING = 64
HIDDEN = 256
DROPOUT = 0.3
LEARNING_RATE = 4e-3
POINTS = 12  # held-out perplexities along the learning curve


class Outcome(NamedTuple):
    """What a training run gave; perplexities are held-out, as (step, perplexity)."""

    perplexities: list[tuple[int, float]]
    losses: list[tuple[int, float]]
    loss_difference: float
    gradient_difference: float
    head_difference: float
    seconds: dict[str, float]


def model(vocabulary: int) -> nn.Sequential:
    """The network, from CONTEXT word numbers a row to a row of logits; the last layer makes those."""
    return nn.Sequential(
        nn.Embedding(vocabulary, EMBEDDING),
        nn.Flatten(),
        nn.Dropout(DROPOUT),
        nn.Linear(CONTEXT * EMBEDDING, HIDDEN),
        nn.Tanh(),
        nn.Dropout(DROPOUT),
        nn.Linear(HIDDEN, vocabulary),
    )


def train(text: Text, steps: int, advance: Callable[[str], None]) -> Outcome:
    """Train by `linear_cross_entropy`, which makes no logits.

    At every step they are made nevertheless, to compare loss and gradient of online-softmax with torch's.
    """
    torch.manual_seed(0)
    rows = torch.tensor(windows(text.training))
    held_out = torch.tensor(windows(text.held_out))
    network = model(len(text.vocabulary))
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    seconds: dict[str, list[float]] = {library: [] for library in LOSSES}
    losses, loss_differences, gradient_differences, head_differences = [], [], [], []
    perplexities = [(0, perplexity(network, held_out))]
    for step in range(1, steps + 1):
        batch = rows[torch.randint(len(rows), (BATCH,))]
        features, target = network[:-1](batch[:, :-1]), batch[:, -1]
        with torch.no_grad():
            logits = network[-1](features)
        ours, torchs = _both(step, logits, target, seconds)
        loss = HEADS["online-softmax"](features, network[-1].weight, target, linear_bias=network[-1].bias)
        losses.append((step, loss.item()))
        head_differences.append(abs(loss.item() - torchs.loss) / abs(torchs.loss))
        loss_differences.append(abs(ours.loss - torchs.loss) / abs(torchs.loss))
        largest = torchs.gradient.abs().max()
        gradient_differences.append(float((ours.gradient - torchs.gradient).abs().max() / largest))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step == steps or step * POINTS // steps > (step - 1) * POINTS // steps:
            perplexities.append((step, perplexity(network, held_out)))
        advance(f"loss {loss.item():.3f}  held-out perplexity {perplexities[-1][1]:.1f}")
    medians = {library: statistics.median(times) for library, times in seconds.items()}
    differences = max(loss_differences), max(gradient_differences), max(head_differences)
    return Outcome(perplexities, losses, *differences, medians)


def _both(step: int, logits: torch.Tensor, target: torch.Tensor, seconds: dict[str, list[float]]) -> list[Step]:
    """The loss step by each library, in turn the first, so that neither has the warmer cache."""
    order = list(LOSSES) if step % 2 else list(LOSSES)[::-1]
    found = {library: loss_step(library, logits, target) for library in order}
    for library in LOSSES:
        seconds[library].append(found[library].seconds)
    return [found[library] for library in LOSSES]


@torch.no_grad()
def perplexity(network: nn.Sequential, rows: torch.Tensor) -> float:
    """The exponential of the mean loss over rows of CONTEXT words and a target."""
    network.eval()
    total, head = 0.0, network[-1]
    for part in rows.split(BATCH):
        features, target = network[:-1](part[:, :-1]), part[:, -1]
        total += float(HEADS["online-softmax"](features, head.weight, target, linear_bias=head.bias, reduction="sum"))
    network.train()
    return math.exp(total / len(rows))

"""Sharded rows of logits, and where they are cut."""

from __future__ import annotations

import torch


def cuts(size, even, classes=41):
    """Where each shard begins, and the end; uneven ones include an empty shard with four processes."""
    if even:
        return [rank * 12 for rank in range(size + 1)]
    return {2: [0, 30, classes], 4: [0, 3, 3, 40, classes]}[size]


def rows(classes, dtype=torch.float32, count=9):
    logits = (torch.randn(count, classes, dtype=torch.float64) * 3).to(dtype)
    target = torch.randint(classes, (count,))
    target[2] = -100
    return logits, target

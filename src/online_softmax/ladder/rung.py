"""What a rung is, and what it works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Arrays(NamedTuple):
    """One ladder's arrays, NumPy's on the CPU and torch's on the GPU."""

    logits: Any
    """(rows, columns)"""
    target: Any
    """(rows,), int64"""
    result: Any
    """(rows, columns): probabilities, or the gradient of a loss."""
    probabilities: Any
    """(rows, columns): what a softmax that is followed by a loss writes in between."""
    loss: Any
    """(rows,), in the dtype that is computed with."""


class Answer(NamedTuple):
    """What a rung made."""

    result: Any
    loss: Any = None
    """One a row, or their sum; None for a softmax."""


class Rung(NamedTuple):
    """One version of the computation."""

    name: str
    reads: str
    """How often it reads the row from memory."""
    idea: str
    run: Callable[[Arrays], Answer]
    claim: str = ""
    """The speed that is usually claimed for it, relative to naive."""
    safe: bool = True
    """Whether it must be right on every row; one that is not says in the table whether it was."""
    optional: bool = False
    """Whether it is left out where it does not run."""


IDEAS = {
    "unsafe": "exp(x) / sum exp(x), nothing subtracted",
    "naive": "one element at a time; the maximum is subtracted",
    "three-pass": "the row is shared out to parallel lanes",
    "online, by element": "a running (m, s) a lane, merged with every element",
    "online": "a running (m, s), merged with every block",
    "online, then a loss": "probabilities are stored, then read back",
    "fused": "loss and gradient from (m, s); probabilities are never stored",
    "softmax of this library": "each row read once",
    "cross_entropy of this library": "each row read once, loss and gradient in one pass",
    "torch.softmax": "",
    "torch.compile(softmax)": "",
    "F.cross_entropy": "forward and backward",
}
CLAIMS = {"naive": "1×", "three-pass": "10×", "online": "15×", "fused": "20×"}


def make(name: str, reads: str, run: Callable[[Arrays], Answer], safe: bool = True, idea: str | None = None) -> Rung:
    """A rung with the idea and the claim that go with its name."""
    return Rung(name, reads, IDEAS[name] if idea is None else idea, run, CLAIMS.get(name, ""), safe)

"""The rows the workshop looks at: seven kinds, one of them typed in by the user and parsed as numbers, never run."""

from __future__ import annotations

import numpy as np

KINDS = (
    "normal",
    "sorted up",
    "sorted down",
    "constant",
    "one outlier",
    "with −inf",
    "pasted",
)
MOST_PASTED = 1024


def make_row(kind: str, n: int, scale: float, seed: int) -> np.ndarray:
    """A float64 row of n logits of one of the kinds above, other than "pasted"."""
    generator = np.random.default_rng(seed)
    row = scale * generator.standard_normal(n)
    if kind == "sorted up":
        row.sort()
    elif kind == "sorted down":
        row = np.sort(row)[::-1]
    elif kind == "constant":
        row[:] = scale
    elif kind == "one outlier":
        row[generator.integers(n)] = 12 * scale
    elif kind == "with −inf":
        row[generator.permutation(n)[: n // 3]] = -np.inf
    return row


def parse_row(text: str) -> np.ndarray:
    """The numbers in a text, separated by spaces, commas, semicolons or new lines.

    Raises ValueError, in words for the person who pasted, when there are none, too many, or something else.
    """
    for separator in ",;[]()":
        text = text.replace(separator, " ")
    words = text.replace("−", "-").replace("∞", "inf").split()
    if not words:
        raise ValueError("Nothing is pasted yet: numbers are wanted, such as 1.5, -2, 0, inf.")
    if len(words) > MOST_PASTED:
        raise ValueError(f"{len(words)} numbers are too many to draw: at most {MOST_PASTED} are wanted.")
    return np.array([_number(word, position) for position, word in enumerate(words, start=1)])


def _number(word: str, position: int) -> float:
    try:
        return float(word)
    except ValueError:
        shown = word if len(word) <= 24 else word[:24] + "…"
        raise ValueError(f"“{shown}”, the entry number {position}, is no number.") from None

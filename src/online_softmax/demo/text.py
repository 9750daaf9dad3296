"""The demo's text: the documentation topics that every CPython carries, as numbered words."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import NamedTuple

BOUNDARY = "¶"
CONTEXT = 4
HELD_OUT_EVERY = 10


class Text(NamedTuple):
    """Paragraphs as lists of word numbers; number 0 is the boundary between paragraphs."""

    vocabulary: tuple[str, ...]
    training: list[list[int]]
    held_out: list[list[int]]


def load() -> Text:
    """Number the words and marks of ``pydoc_data.topics``; every tenth paragraph is held out.

    A fifth of the topics repeats other topics word for word. Each paragraph is kept once, so that
    nothing that is held out has been seen in training.
    """
    from pydoc_data.topics import topics

    paragraphs = dict.fromkeys(p.strip() for topic in topics.values() for p in topic.split("\n\n"))
    words = [re.findall(r"\w+|[^\w\s]", paragraph) for paragraph in paragraphs]
    vocabulary = (BOUNDARY, *sorted({word for paragraph in words for word in paragraph}))
    number = {word: index for index, word in enumerate(vocabulary)}
    numbered = [[number[word] for word in paragraph] for paragraph in words if paragraph]
    held_out = numbered[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    del numbered[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    return Text(vocabulary, numbered, held_out)


def windows(paragraphs: list[list[int]]) -> list[list[int]]:
    """Every word with the CONTEXT words before it: rows of CONTEXT + 1 numbers, the target last."""
    rows = []
    for paragraph in paragraphs:
        padded = [0] * CONTEXT + paragraph + [0]
        rows += [padded[i : i + CONTEXT + 1] for i in range(len(paragraph) + 1)]
    return rows


def unigram_perplexity(text: Text) -> float:
    """Held-out perplexity of word frequencies alone, every word counted once more than it occurs."""
    counts = Counter(row[-1] for row in windows(text.training))
    total = sum(counts.values()) + len(text.vocabulary)
    targets = [row[-1] for row in windows(text.held_out)]
    return math.exp(-sum(math.log((counts[t] + 1) / total) for t in targets) / len(targets))

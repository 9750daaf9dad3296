"""Check yourself: six questions, each with an answer that unfolds and a demonstration that is computed."""

from __future__ import annotations

import math

import numpy as np

from ...laws import LAWS, Merge, Pair, broken_laws
from ...state import State
from ..losses import losses
from ..page import number, table, unfolding
from ..tiles import attend
from ..traffic import traffic

TITLE = "Check yourself"
INTRODUCTION = """
<p>Answer first, then unfold. Each answer ends in numbers that were computed for it when the page was drawn.</p>"""


def overflow(largest: float) -> str:
    """Why exp overflows, and how subtracting the maximum helps."""
    rows = []
    for name in ("float16", "float32", "float64"):
        x = np.array([largest, largest - 1, 0.0]).astype(name)
        with np.errstate(over="ignore", invalid="ignore"):
            naive = np.exp(x)
            rows.append((name, _numbers(naive), _numbers(naive / naive.sum()), _numbers(np.exp(x - x.max()))))
    return unfolding(
        "Why does exp overflow, and how does subtracting the maximum help?",
        "<p>e<sup>x</sup> leaves fp16 at x > 11, fp32 at x > 88 and fp64 at x > 709; then ∞ / ∞ is NaN. Multiplying "
        "numerator and denominator of a softmax by e<sup>−m</sup> changes nothing in exact arithmetic, and with m the "
        "maximum every exponent is at most 0: no term exceeds 1, one of them is exactly 1, so the sum lies between 1 "
        "and the number of elements. What underflows to 0 was too small to matter.</p>"
        + table(("dtype", "exp(x)", "exp(x) / sum", "exp(x − m)"), rows, f"x = ({largest:g}, {largest - 1:g}, 0)"),
    )


def reads(rows: int, columns: int) -> str:
    """Why three reads are expensive."""
    ways = traffic(rows, columns, 1, "fp32", 4250.0)
    return unfolding(
        "Why are three reads expensive?",
        "<p>An H200 moves about 4250 GB a second and computes about three exponentials in the time it takes to fetch "
        "one fp32 number, so a pass costs what its bytes cost. Reading a row a second time is free only while the row "
        "is still in a cache. A matrix that is larger than the caches comes from memory again in every pass.</p>"
        + table(
            ("way", "bytes moved", "least time"),
            [(w.way, f"{(w.read_bytes + w.written_bytes) / 1e9:.2f} GB", f"{w.milliseconds:.2f} ms") for w in ways],
            f"{rows} × {columns} in fp32 at 4250 GB/s",
        ),
    )


def correction(old: tuple[float, ...], new: float) -> str:
    """Derive the correction."""
    state, m_new = State.of(np.array(old)), max(*old, new)
    m, s = float(state.m), float(state.s)
    factor = math.exp(m - m_new)
    exact = sum(math.exp(x - m_new) for x in old)
    return unfolding(
        "Derive the correction: why multiply by exp(m − m′)?",
        "<p>The sum so far is <var>s</var> = Σ e<sup>x − m</sup>; wanted is Σ e<sup>x − m′</sup>. Write "
        "x − m′ = (x − m) + (m − m′). The second bracket is the same for every term and comes out of the sum: "
        "Σ e<sup>x − m′</sup> = e<sup>m − m′</sup> · <var>s</var>. So the elements are not needed again, only "
        "their sum.</p>"
        + table(
            ("s against m", "factor exp(m − m′)", "s · factor", "summed anew against m′"),
            [(number(s, 8), number(factor, 8), number(s * factor, 8), number(exact, 8))],
            f"Seen: {', '.join(f'{x:g}' for x in old)}; then comes {new:g}",
        ),
    )


def tiling(keys: int, tile: int) -> str:
    """Why this makes tiled attention possible."""
    attention = attend(keys, tile, 2.0, 17)
    last = attention.tiles[-1]
    return unfolding(
        "Why does this make tiled attention possible?",
        "<p>A softmax seems to need its whole row before the first weight is known, and so attention seems to need a "
        "whole row of scores: keys × queries numbers in memory. With the correction, weights taken against a maximum "
        "that turns out too low are mended afterwards by one factor, for <var>s</var> and for <var>v</var> alike. "
        "So a tile of scores can be made, used and forgotten.</p>"
        + table(
            ("", "component 1", "component 2", "component 3"),
            [
                (f"{len(attention.tiles)} tiles of {tile}", *(f"{x:.12f}" for x in last.output)),
                ("all keys at once", *(f"{x:.12f}" for x in attention.full)),
            ],
            f"One query, {keys} keys",
        ),
    )


def write_the_merge() -> str:
    """Write the merge."""

    def without_guard(a: Pair, b: Pair) -> Pair:
        m = max(a[0], b[0])
        return m, a[1] * _exp(a[0] - m) + b[1] * _exp(b[0] - m)

    def guarded(a: Pair, b: Pair) -> Pair:
        m = max(a[0], b[0])
        return m, sum(s * (1.0 if x == m else _exp(x - m)) for x, s in (a, b))

    return unfolding(
        "Write the merge of two states. What does it give for two empty ones?",
        "<p>With m = max(m₁, m₂): (m₁, s₁) + (m₂, s₂) = (m, s₁ · e<sup>m₁ − m</sup> + s₂ · e<sup>m₂ − m</sup>). For "
        "two empty states m₁ − m is −∞ − (−∞), which is NaN, so equal maxima must take the factor 1 without "
        "subtracting. To write it yourself, fill the blank in <code>examples/write_your_merge.py</code> and run "
        "<code>python examples/write_your_merge.py</code>: it says which law fails.</p>"
        + table(
            ("law", "without the guard", "with it"),
            _verdicts(without_guard, guarded),
            "The library’s laws, run on both merges",
        ),
    )


def fusing(largest: float) -> str:
    """Why fusing with cross-entropy is faster and more stable."""
    rows = [
        (name, number(loss.naive), number(loss.stable))
        for name in ("float16", "float32", "float64")
        for loss in (losses(largest, 5, name),)
    ]
    return unfolding(
        "Why is softmax fused with cross-entropy both faster and more stable?",
        "<p>Faster: the probabilities are never written and never read back. The loss needs one logit and the state, "
        "the gradient is formed from the logits while they are at hand. More stable: a probability that rounds to 0 "
        "has logarithm −∞, while m + log s − x<sub>t</sub> never leaves the logarithmic scale.</p>"
        + table(
            ("dtype", "−log(softmax), naive", "m + log s − x"), rows, f"Target logit {-largest:g}, largest {largest:g}"
        ),
    )


def _verdicts(*merges: Merge) -> list[tuple[str, ...]]:
    broken = [dict(broken_laws(merge)) for merge in merges]
    return [
        (law.__name__.replace("_", " "), *("broken" if law.__name__ in found else "holds" for found in broken))
        for law in LAWS
    ]


def _exp(x: float) -> float:
    return math.nan if math.isnan(x) else math.exp(x)


def _numbers(values: np.ndarray) -> str:
    return ", ".join(number(float(value), 3) for value in values)


def default() -> list[str]:
    """The pieces at the default settings."""
    return [
        overflow(720.0),
        reads(8192, 32768),
        correction((1.0, 2.0), 4.0),
        tiling(64, 8),
        write_the_merge(),
        fusing(60.0),
    ]

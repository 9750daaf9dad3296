"""One pass, exactly: a trace drawn, totalled, and stepped through."""

from __future__ import annotations

import numpy as np

from ...charts.trace import maximum_chart, normaliser_chart
from ...commands.trace import totals
from ...trace import Block, Trace, trace
from ..page import Charts, formula, number, readouts
from ..rows import make_row, parse_row

TITLE = "One pass, exactly"
INTRODUCTION = """
<p>Softmax needs two facts about a row: its maximum <var>m</var>, and the normaliser
<var>s</var> = Σ e<sup>x − m</sup>. Found one after the other they cost two reads of the row. The online algorithm
keeps both at once: it reads a block, and when the block brings a new maximum <var>m′</var> it multiplies the sum it
already has by e<sup>m − m′</sup>, once, and goes on. Nothing is approximated.</p>"""


def make_trace(kind: str, n: int, scale: float, seed: int, block: int, dtype: str, pasted: str) -> Trace:
    """The trace the controls ask for; ValueError, in plain words, where they cannot have it."""
    row = parse_row(pasted) if kind == "pasted" else make_row(kind, n, scale, seed)
    if block > row.size:
        raise ValueError(
            f"The block, {block}, is larger than the row, {row.size}: choose a block of at most {row.size}."
        )
    return trace(row, block=block, dtype=dtype)


def view(result: Trace, step: int) -> list[str | Charts]:
    """Charts and totals of a trace, and the arithmetic of its block number `step`, from 1."""
    return [
        Charts(
            ("Running maximum; dashed, the row’s own; diamonds, rescales", maximum_chart(result, step)),
            ("Running normaliser; dashed, two passes’; diamonds, rescales", normaliser_chart(result, step)),
        ),
        readouts(totals(result)),
        _step(result.blocks[step - 1], step, result.updates),
    ]


def _step(block: Block, step: int, count: int) -> str:
    m, m_new, m_block = (number(value) for value in (block.m_before, block.m_after, block.block_m))
    s, s_new, s_block = (number(value) for value in (block.s_before, block.s_after, block.block_s))
    factor_block = number(1.0 if block.block_m == block.m_after else float(np.exp(block.block_m - block.m_after)))
    verdict = (
        f"A new maximum: the sum so far is rescaled by {number(block.factor)}."
        if block.rescaled
        else "The first block: there is no sum yet to rescale."
        if block.start == 0
        else "The maximum stands: the block’s sum is brought to it, and added."
    )
    return formula(
        f"<strong>Block {step} of {count}</strong>: elements {block.start} to {block.stop - 1}. {verdict}",
        f"<var>m′</var> = max(<var>m</var>, <var>m</var><sub>block</sub>) = max({m}, {m_block}) = "
        f'<output data-readout="step m">{m_new}</output>',
        f"<var>s′</var> = <var>s</var> · e<sup>m − m′</sup> + <var>s</var><sub>block</sub> · "
        f"e<sup>m<sub>block</sub> − m′</sup> = {s} · {number(block.factor)} + {s_block} · {factor_block} = "
        f'<output data-readout="step s">{s_new}</output>',
    )


def default() -> list[str | Charts]:
    """The pieces at the default settings."""
    return view(make_trace("normal", 64, 1.0, 17, 8, "float64", ""), step=4)

"""Any order: the same states merged left to right, as a tree and at random."""

from __future__ import annotations

import math

from ..charts.orders import merge_chart
from ..orders import ORDERS, Node, merge_in_order
from ..page import Charts, number, readouts, table
from ..rows import make_row

TITLE = "Any order"
INTRODUCTION = """
<p>Cut the row into parts and summarise each by its own (<var>m</var>, <var>s</var>). The merge of two parts is again
such a pair, and it is associative and commutative, with the empty part (−∞, 0) as its identity. So the parts may be
threads of a warp, blocks of a stream, or devices of a cluster, and they may report in any order.</p>"""
NOUNS = {"threads of a warp": "thread", "blocks of a stream": "block", "devices of a cluster": "device"}


def view(parts: int, parts_are: str, order: str, seed: int) -> list[str | Charts]:
    """The tree of one order, its states step by step, and the three orders' answers."""
    row = make_row("normal", 64, 3.0, seed)
    nodes = merge_in_order(row, parts, order, seed)
    noun = NOUNS[parts_are]
    answers = [(name, merge_in_order(row, parts, name, seed)[-1]) for name in ORDERS]
    return [
        Charts((f"Merged {order}: the dots are states, the diamond is the row", merge_chart(nodes))),
        readouts((f"log-sum-exp, {name}", f"{node.m + math.log(node.s):.15g}") for name, node in answers),
        table(
            ("step", "merged", "m", "s"),
            [_line(index, node, parts, noun) for index, node in enumerate(nodes)],
            f"The state of each {noun}, then every merge",
        ),
    ]


def _line(index: int, node: Node, parts: int, noun: str) -> tuple[str, str, str, str]:
    step = "" if index < parts else str(index - parts + 1)
    named = f"{noun}{'s' if len(node.parts) > 1 else ''} {', '.join(str(part + 1) for part in node.parts)}"
    return step, named, number(node.m), f"{node.s:.12g}"


def default() -> list[str | Charts]:
    """The pieces at the default settings."""
    return view(8, "threads of a warp", "as a tree", 17)

"""The tree of a merge: parts at the bottom, the row at the top."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...charts import BLUE, GREY, ORANGE, rows

if TYPE_CHECKING:
    import altair

    from ..orders import Node


def merge_chart(nodes: Sequence[Node]) -> altair.LayerChart:
    """One circle a state, lines from every merged pair to the state it made; the last is a diamond."""
    import altair as alt

    place = [sum(node.parts) / len(node.parts) + 1 for node in nodes]
    points = [
        {"x": x, "y": node.level, "m": node.m, "s": node.s, "parts": ", ".join(str(p + 1) for p in node.parts)}
        for x, node in zip(place, nodes, strict=True)
    ]
    lines = [
        {"x": place[child], "y": nodes[child].level, "x2": place[index], "y2": node.level}
        for index, node in enumerate(nodes)
        for child in node.children
    ]
    count = sum(not node.children for node in nodes)
    x = alt.X(
        "x:Q",
        title="part",
        axis=alt.Axis(values=list(range(1, count + 1)), grid=False),
        scale=alt.Scale(domain=[0.5, count + 0.5]),
    )
    y = alt.Y(
        "y:Q",
        title="merges deep",
        axis=alt.Axis(tickMinStep=1, format="d"),
        scale=alt.Scale(zero=True, nice=False, padding=12),
    )
    tooltip = ["parts:N", alt.Tooltip("m:Q", format=".6g"), alt.Tooltip("s:Q", format=".6g")]
    links = alt.Chart(rows(lines)).mark_rule(color=GREY).encode(x=x, y=y, x2="x2:Q", y2="y2:Q")
    states = alt.Chart(rows(points[:-1])).mark_circle(color=BLUE, size=90, opacity=1).encode(x=x, y=y, tooltip=tooltip)
    whole = (
        alt.Chart(rows(points[-1:]))
        .mark_point(shape="diamond", color=ORANGE, size=200, filled=True, opacity=1)
        .encode(x=x, y=y, tooltip=tooltip)
    )
    return alt.layer(links, states, whole).properties(width="container", height=260)

"""Two charts of one trace: the running maximum, and the running normaliser, against the exact ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..trace import Trace
from . import BLUE, GREY, HEIGHT, ORANGE, rows

if TYPE_CHECKING:
    import altair


def maximum_chart(trace: Trace, step: int | None = None) -> altair.LayerChart:
    """The running maximum after each block, the row's maximum as a dashed line, rescales as diamonds."""
    return _chart(trace, "m", "m_after", trace.maximum, "running maximum m", step, log=False)


def normaliser_chart(trace: Trace, step: int | None = None) -> altair.LayerChart:
    """The running normaliser on a log axis, the two-pass one as a dashed line, rescales as diamonds."""
    return _chart(trace, "s", "s_after", trace.two_pass, "running normaliser s", step, log=True)


def _chart(
    trace: Trace, name: str, field: str, exact: float, title: str, step: int | None, log: bool
) -> altair.LayerChart:
    import altair as alt

    records = [
        {
            "block": index,
            "value": _drawable(getattr(block, field), log),
            "rescaled": block.rescaled,
            "factor": block.factor,
            "block maximum": block.block_m,
        }
        for index, block in enumerate(trace.blocks, start=1)
    ]
    # A log axis starts at the smallest value, a linear one wherever the data lies: neither is forced to hold zero.
    scale = alt.Scale(type="log", nice=False, padding=12) if log else alt.Scale(zero=False, padding=12)
    x = alt.X(
        "block:Q", title="block", axis=alt.Axis(tickMinStep=1, grid=False), scale=alt.Scale(nice=False, padding=10)
    )
    y = alt.Y("value:Q", title=title, scale=scale)
    tooltip = ["block:Q", alt.Tooltip("value:Q", title=name, format=".6g"), alt.Tooltip("factor:Q", format=".4g")]
    base = alt.Chart(rows(records))
    exact_rows = rows([{"value": _drawable(exact, log)}])
    layers = [
        alt.Chart(exact_rows).mark_rule(color=GREY, strokeDash=[6, 4], strokeWidth=1.5).encode(y=y),
        base.mark_line(color=BLUE, interpolate="step-after", strokeWidth=2).encode(x=x, y=y),
        base.mark_circle(color=BLUE, size=30, opacity=1).encode(x=x, y=y, tooltip=tooltip),
        base.transform_filter("datum.rescaled")
        .mark_point(shape="diamond", color=ORANGE, size=150, strokeWidth=2.5, filled=False, opacity=1)
        .encode(x=x, y=y, tooltip=tooltip),
    ]
    if step is not None:
        here = rows([{"block": step}])
        layers.append(alt.Chart(here).mark_rule(color=ORANGE, opacity=0.5, strokeWidth=2).encode(x=x))
    return alt.layer(*layers).properties(width="container", height=HEIGHT)


def _drawable(value: float, log: bool) -> float | None:
    return None if log and value <= 0 else value


def trace_chart(trace: Trace) -> altair.HConcatChart:
    """Both charts side by side, for a file."""
    import altair as alt

    charts = [maximum_chart(trace), normaliser_chart(trace)]
    titles = ["Running maximum (dashed: the row's own)", "Running normaliser (dashed: two passes)"]
    sized = [chart.properties(width=380, title=title) for chart, title in zip(charts, titles, strict=True)]
    return alt.hconcat(*sized)

"""Naive and stable loss at growing logits, and the gradient of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...charts import BLUE, GREY, HEIGHT, ORANGE, rows

if TYPE_CHECKING:
    import altair

    from ..losses import Gradient, Loss


def loss_chart(curve: Sequence[Loss], largest: float) -> altair.LayerChart:
    """The stable loss as a line, the naive one as diamonds for as long as it is finite; a rule at `largest`."""
    import altair as alt

    names = ["from the state", "naive"]
    records = [
        {"largest": loss.largest, "loss": value, "way": name}
        for loss in curve
        for name, value in zip(names, (loss.stable, loss.naive), strict=True)
    ]
    x = alt.X("largest:Q", title="largest logit", scale=alt.Scale(type="log", nice=False), axis=alt.Axis(grid=False))
    y = alt.Y("loss:Q", title="loss, nats", scale=alt.Scale(type="symlog"))
    colour = alt.Color("way:N", scale=alt.Scale(domain=names, range=[BLUE, ORANGE]))
    shape = alt.Shape("way:N", scale=alt.Scale(domain=names, range=["circle", "diamond"]))
    base = alt.Chart(rows(records))
    line = (
        base.transform_filter("datum.way == 'from the state'").mark_line(strokeWidth=2).encode(x=x, y=y, color=colour)
    )
    tooltip = [alt.Tooltip("largest:Q", format=".4g"), alt.Tooltip("loss:Q", format=".6g"), "way:N"]
    dots = (
        base.transform_filter("isValid(datum.loss)")
        .mark_point(size=45, opacity=1)
        .encode(x=x, y=y, color=colour, shape=shape, tooltip=tooltip)
    )
    here = alt.Chart(rows([{"largest": largest}])).mark_rule(color=GREY, strokeDash=[2, 3], strokeWidth=2).encode(x=x)
    return alt.layer(here, line, dots).properties(width="container", height=HEIGHT)


def gradient_chart(gradient: Gradient) -> altair.Chart:
    """Probability and gradient of each class, as bars side by side."""
    import altair as alt

    names = ["probability", "gradient"]
    records = [
        {"class": str(index), "value": value, "of": name}
        for index, pair in enumerate(zip(gradient.probabilities, gradient.gradient, strict=True))
        for name, value in zip(names, pair, strict=True)
    ]
    return (
        alt.Chart(rows(records))
        .mark_bar()
        .encode(
            x=alt.X("class:N", title="class", axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("of:N", sort=names),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(domain=[-1, 1])),
            color=alt.Color("of:N", scale=alt.Scale(domain=names, range=[BLUE, ORANGE])),
            tooltip=["class:N", "of:N", alt.Tooltip("value:Q", format=".6g")],
        )
        .properties(width="container", height=HEIGHT)
    )

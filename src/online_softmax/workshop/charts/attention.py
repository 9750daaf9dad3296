"""The output of tiled attention after each tile, against attention over all keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...charts import BLUE, GREY, HEIGHT, ORANGE, rows

if TYPE_CHECKING:
    import altair

    from ..tiles import Attention


def output_chart(attention: Attention) -> altair.LayerChart:
    """Each component of v / s after each tile; full attention dashed."""
    import altair as alt

    names = [f"value {i}" for i in range(1, len(attention.full) + 1)]
    points = [
        {"tile": index, "component": name, "value": value}
        for index, tile in enumerate(attention.tiles, start=1)
        for name, value in zip(names, tile.output, strict=True)
    ]
    x = alt.X("tile:Q", title="tile", axis=alt.Axis(tickMinStep=1, grid=False), scale=alt.Scale(nice=False, padding=10))
    y = alt.Y("value:Q", title="output v / s")
    colour = alt.Color("component:N", scale=alt.Scale(domain=names, range=[BLUE, ORANGE, GREY]))
    shape = alt.Shape("component:N", scale=alt.Scale(domain=names, range=["circle", "diamond", "square"]))
    line = alt.Chart(rows(points)).mark_line(strokeWidth=2).encode(x=x, y=y, color=colour)
    dots = (
        alt.Chart(rows(points))
        .mark_point(size=60, filled=True, opacity=1)
        .encode(
            x=x, y=y, color=colour, shape=shape, tooltip=["tile:Q", "component:N", alt.Tooltip("value:Q", format=".6g")]
        )
    )
    exact = rows([{"component": name, "value": value} for name, value in zip(names, attention.full, strict=True)])
    full = alt.Chart(exact).mark_rule(strokeDash=[6, 4]).encode(y=y, color=colour)
    return alt.layer(full, line, dots).properties(width="container", height=HEIGHT)


def difference_chart(attention: Attention) -> altair.Chart:
    """The largest difference from full attention after each tile, on a log axis that ends at 1e-17."""
    import altair as alt

    points = [
        {"tile": index, "difference": max(tile.difference, 1e-17)}
        for index, tile in enumerate(attention.tiles, start=1)
    ]
    x = alt.X("tile:Q", title="tile", axis=alt.Axis(tickMinStep=1, grid=False), scale=alt.Scale(nice=False, padding=10))
    axis = alt.Axis(format=".0e", values=[1, 1e-4, 1e-8, 1e-12, 1e-16])
    y = alt.Y("difference:Q", title="difference", axis=axis, scale=alt.Scale(type="log", domain=[1e-17, 10]))
    return (
        alt.Chart(rows(points))
        .mark_line(color=BLUE, point={"color": BLUE, "size": 60}, strokeWidth=2)
        .encode(x=x, y=y, tooltip=["tile:Q", alt.Tooltip("difference:Q", format=".2e")])
        .properties(width="container", height=HEIGHT)
    )

"""Bytes read and written, a bar for each way of computing softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...charts import BLUE, ORANGE, rows

if TYPE_CHECKING:
    import altair

    from ..traffic import Traffic


def traffic_chart(ways: Sequence[Traffic]) -> altair.Chart:
    """Gigabytes, reads and the write stacked."""
    import altair as alt

    names = ["read", "written"]
    records = [
        {"way": way.way, "what": name, "GB": value / 1e9, "order": order}
        for way in ways
        for order, (name, value) in enumerate(zip(names, (way.read_bytes, way.written_bytes), strict=True))
    ]
    return (
        alt.Chart(rows(records))
        .mark_bar()
        .encode(
            x=alt.X("GB:Q", title="GB"),
            y=alt.Y("way:N", title=None, sort=[way.way for way in ways], axis=alt.Axis(labelLimit=200)),
            color=alt.Color("what:N", scale=alt.Scale(domain=names, range=[BLUE, ORANGE])),
            order="order:Q",
            tooltip=["way:N", "what:N", alt.Tooltip("GB:Q", format=".3f")],
        )
        .properties(width="container", height=110)
    )

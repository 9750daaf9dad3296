"""The ladder as bars: how near each version comes to a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import BLUE, GREY, ORANGE, rows

if TYPE_CHECKING:
    import altair

    from ..ladder.run import Ladder


def ladder_chart(ladder: Ladder, width: int | str = "container") -> altair.LayerChart:
    """A bar a rung, its relative speed written behind it; the library's in orange, torch's in grey."""
    import altair as alt

    records = [
        {
            "version": rung.name,
            "fraction of copy": rung.of_copy,
            "label": f"{rung.of_copy:.2f} · {rung.relative:.1f}×",
            "who": "torch" if "torch" in rung.name or rung.name.startswith("F.") else _who(rung.name),
        }
        for rung in ladder.rungs
    ]
    order = [rung.name for rung in ladder.rungs]
    most = max(rung.of_copy for rung in ladder.rungs)
    base: Any = alt.Chart(rows(records)).encode(
        x=alt.X("fraction of copy:Q", scale=alt.Scale(domain=[0, max(1.0, most) * 1.25])),
        y=alt.Y("version:N", sort=order, title=None, axis=alt.Axis(labelLimit=240)),
        tooltip=["version:N", alt.Tooltip("fraction of copy:Q", format=".3f")],
    )
    bars = base.mark_bar().encode(
        color=alt.Color(
            "who:N",
            scale=alt.Scale(domain=["ladder", "library", "torch"], range=[BLUE, ORANGE, GREY]),
        )
    )
    text = base.mark_text(align="left", dx=4, color=GREY).encode(text="label:N")
    return alt.layer(bars, text).properties(width=width, height=alt.Step(22))


def ladders_chart(ladders: Sequence[Ladder]) -> altair.VConcatChart:
    """One panel a shape, for a file."""
    import altair as alt

    panels = [
        ladder_chart(ladder, width=460).properties(title=f"{ladder.rows} × {ladder.columns}, {ladder.dtype}")
        for ladder in ladders
    ]
    return alt.vconcat(*panels)


def _who(name: str) -> str:
    return "library" if "library" in name else "ladder"

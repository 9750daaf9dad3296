"""Charts of traces, attention and the ladder: altair in, SVG out, for the commands, the workshop and the docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import altair

# Told apart by colour-blind readers and legible on white and on near-black; shape and dash repeat what colour says.
BLUE = "#3a86c8"
ORANGE = "#d9691e"
GREY = "#8c8c8c"
HEIGHT = 220


def require_altair() -> None:
    """Raise ImportError, with the way out, where charts cannot be drawn."""
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"charts need {error.name}: pip install 'online-softmax[workshop]' brings altair and vl-convert"
        ) from error


def write_svg(chart: altair.TopLevelMixin, path: str | Path) -> None:
    """Write a chart as one SVG file, on white."""
    import vl_convert

    specification = finish(chart).to_dict()
    specification["config"]["background"] = "white"
    Path(path).write_text(vl_convert.vegalite_to_svg(specification), encoding="utf-8")


def finish(chart: altair.TopLevelMixin) -> altair.TopLevelMixin:
    """The common look: no background, so that a page's light or dark shows through; quiet grid lines; no menu."""
    font = "system-ui, sans-serif"
    chart = chart.properties(usermeta={"embedOptions": {"actions": False}})
    return (
        chart.configure(
            background="transparent",
            font=font,
            view={"stroke": None},
            padding={"left": 2, "right": 8, "top": 6, "bottom": 2},
        )
        .configure_axis(
            gridColor=GREY,
            gridOpacity=0.25,
            domainColor=GREY,
            tickColor=GREY,
            labelFontSize=12,
            titleFontSize=12,
            titleFontWeight="normal",
        )
        .configure_legend(labelFontSize=12, titleFontSize=12, orient="top", title=None, labelLimit=400)
    )


def rows(records: Sequence[Mapping[str, object]]) -> altair.Data:
    """Inline data, with non-finite numbers as nulls: a chart leaves a gap there."""
    import altair as alt
    import numpy as np

    def clean(value: object) -> object:
        return None if isinstance(value, float) and not np.isfinite(value) else value

    return alt.Data(values=[{key: clean(value) for key, value in record.items()} for record in records])

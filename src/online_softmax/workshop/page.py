"""What sections are made of: HTML text and altair charts, which the marimo app and the exported page both show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ..charts import finish

if TYPE_CHECKING:
    import altair


_LONGEST_FIGURE = 32  # a table's cell with more characters than this is text, and may wrap


class Charts(tuple[tuple[str, Any], ...]):
    """Captioned charts, side by side where there is room, below one another where there is not."""

    def __new__(cls, *captioned: tuple[str, altair.TopLevelMixin]) -> Charts:
        """One (caption, chart) or more."""
        return super().__new__(cls, captioned)


def to_html(pieces: Iterable[str | Charts], draw: Callable[[altair.TopLevelMixin], str]) -> str:
    """One HTML text of all pieces; `draw` gives the HTML that shows a chart."""
    return f'<div class="osw">{"".join(_piece(piece, draw) for piece in pieces)}</div>'


def _piece(piece: str | Charts, draw: Callable[[altair.TopLevelMixin], str]) -> str:
    if isinstance(piece, str):
        return piece
    figures = (
        f"<figure><figcaption>{escape(caption)}</figcaption>{draw(finish(chart))}</figure>" for caption, chart in piece
    )
    return f'<div class="osw-charts">{"".join(figures)}</div>'


def readouts(pairs: Iterable[tuple[str, str]]) -> str:
    """Named values in a grid."""
    items = "".join(
        f'<div><dt>{escape(name)}</dt><dd data-readout="{escape(name)}">{escape(value)}</dd></div>'
        for name, value in pairs
    )
    return f'<dl class="osw-readouts">{items}</dl>'


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], caption: str, current: int | None = None) -> str:
    """A table that scrolls sideways on a narrow screen; row number `current` is marked. Cells are text, not HTML."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(
        f"<tr{' aria-current=step' if index == current else ''}>{''.join(map(_cell, row))}</tr>"
        for index, row in enumerate(rows)
    )
    return (
        f'<p class="osw-caption">{escape(caption)}</p>'
        f'<div class="osw-table" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(text: str) -> str:
    kind = ' class="osw-words"' if len(text) > _LONGEST_FIGURE else ""
    return f"<td{kind}>{escape(text)}</td>"


def unfolding(question: str, body: str) -> str:
    """A question whose answer unfolds; `body` is HTML."""
    return f"<details><summary>{escape(question)}</summary><div>{body}</div></details>"


def formula(*lines: str) -> str:
    """Lines of a formula, in HTML."""
    return f'<div class="osw-formula" role="group">{"".join(f"<div>{line}</div>" for line in lines)}</div>'


def notice(text: str) -> str:
    """What is wrong with an input, in plain words."""
    return f'<p class="osw-notice" role="alert">{escape(text)}</p>'


def number(value: float, digits: int = 6) -> str:
    """A number as text, with a minus sign and words for what is not finite."""
    return {"inf": "∞", "-inf": "−∞", "nan": "NaN"}.get(str(value)) or f"{value:.{digits}g}".replace("-", "−")


def heading(section: Any) -> str:
    """A section's title, to which the opening's links lead, and its introduction."""
    return f'<h2 id="{_anchor(section)}">{escape(section.TITLE)}</h2>{section.INTRODUCTION}'


def opening(sections: Iterable[Any]) -> str:
    """The page's title and the links to its sections."""
    links = "".join(f'<li><a href="#{_anchor(section)}">{escape(section.TITLE)}</a></li>' for section in sections)
    return (
        "<header><h1>Online softmax: the workshop</h1>"
        "<p>The normaliser of a softmax in one pass over the row, exactly: "
        "what the algorithm does, why it may be cut up in any way, and what that is worth.</p>"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>'
    )


def _anchor(section: Any) -> str:
    return str(section.__name__).rpartition(".")[2].replace("_", "-")

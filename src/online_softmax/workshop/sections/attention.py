"""From softmax to attention: the state carries a vector too."""

from __future__ import annotations

from ..charts.attention import difference_chart, output_chart
from ..page import Charts, formula, number, readouts, table
from ..tiles import Attention, attend

TITLE = "From softmax to attention"
INTRODUCTION = """
<p>Attention is a softmax used at once: its weights average the values, Σ p<sub>i</sub> · value<sub>i</sub>. Let the
state carry the unnormalised average too, <var>v</var> = Σ e<sup>x − m</sup> · value, and rescale it by the same
factor as <var>s</var>. Then keys and values can flow past in tiles, the scores of one tile at a time, and
<var>v</var> / <var>s</var> after the last tile is attention over all of them. The row of scores is never whole
anywhere: this is how FlashAttention works (section 3.1).</p>"""


def view(keys: int, tile: int, sharpness: float, seed: int, step: int) -> list[str | Charts]:
    """The output after every tile, its distance from the end, and the arithmetic of tile number `step`, from 1."""
    attention = attend(keys, tile, sharpness, seed)
    step = min(step, len(attention.tiles))
    last = attention.tiles[-1]
    return [
        Charts(
            ("Output after each tile; dashed, full attention", output_chart(attention)),
            ("Largest difference from full attention", difference_chart(attention)),
        ),
        readouts(
            [
                ("tiles", str(len(attention.tiles))),
                ("output after the last tile", _vector(last.output)),
                ("full attention", _vector(attention.full)),
                ("largest difference", f"{last.difference:.1e}"),
            ]
        ),
        _step(attention, step),
        table(
            ("tile", "keys", "m", "s", "v", "v / s"),
            [
                (str(i), f"{t.start}..{t.stop - 1}", number(t.m, 5), number(t.s, 6), _vector(t.v), _vector(t.output))
                for i, t in enumerate(attention.tiles, start=1)
            ],
            "The state after each tile",
            current=step - 1,
        ),
    ]


def _step(attention: Attention, step: int) -> str:
    tile = attention.tiles[step - 1]
    before = attention.tiles[step - 2] if step > 1 else None
    if before is None:
        return formula(
            "<strong>Tile 1</strong>: the state starts empty, so it becomes the tile’s own: "
            f"<var>m</var> = {number(tile.m)}, <var>s</var> = {number(tile.s)}, <var>v</var> = {_vector(tile.v)}"
        )
    return formula(
        f"<strong>Tile {step}</strong>: keys {tile.start} to {tile.stop - 1}; "
        f"<var>m</var> goes from {number(before.m)} to <var>m′</var> = {number(tile.m)}, "
        f"so e<sup>m − m′</sup> = {number(tile.factor)}",
        f"<var>s′</var> = {number(before.s)} · {number(tile.factor)} + Σ e<sup>x − m′</sup> = {number(tile.s)}",
        f"<var>v′</var> = {_vector(before.v)} · {number(tile.factor)} + Σ e<sup>x − m′</sup> · value = "
        f"{_vector(tile.v)}",
    )


def _vector(values: tuple[float, ...]) -> str:
    return f"({', '.join(number(value, 4) for value in values)})"


def default() -> list[str | Charts]:
    """The pieces at the default settings."""
    return view(64, 8, 2.0, 17, step=4)

"""Draws the fraction of copy against row length, a panel for each operation and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import altair
import vl_convert  # noqa: F401  altair writes SVG with it, and would miss it only at the end

from .record import Record, fraction_of_copy, workloads
from .tables import FEW_ELEMENTS, NAMES

VARIANTS = "", "existing output"
LENGTHS_AT_LEAST = 3  # fewer are no curve


def draw(records: Sequence[Record], path: Path) -> None:
    """Write the SVG file."""
    panels: dict[str, list[Record]] = {}
    for record in workloads(records, way="cold"):
        few = records[0]["device"] == "cuda" and record["rows"] * record["columns"] < FEW_ELEMENTS
        if record["variant"] in VARIANTS and not few:
            name = ", ".join(filter(None, [record["operation"], record["variant"], NAMES[record["dtype"]]]))
            panels.setdefault(name, []).append(record)
    points = [
        {
            "panel": panel,
            "columns": record["columns"],
            "library": library,
            "fraction": fraction_of_copy(record, library),
        }
        for panel, group in panels.items()
        if len({record["columns"] for record in group}) >= LENGTHS_AT_LEAST
        for record in group
        for library in record["seconds"]
    ]
    base = altair.Chart(altair.Data(values=points)).encode(
        x=altair.X("columns:Q", title="row length", scale=altair.Scale(type="log", base=2)),
        y=altair.Y("fraction:Q", title="fraction of copy", scale=altair.Scale(domainMin=0)),
        color=altair.Color("library:N", title=None, sort=None),
    )
    panel = (base.mark_line() + base.mark_point(filled=True)).properties(width=260, height=160)
    chart = panel.facet(altair.Facet("panel:N", title=None, sort=None), columns=3)
    chart.save(str(path), format="svg")

"""What it costs: bytes by arithmetic, then the ladder by measurement."""

from __future__ import annotations

from ...charts.ladder import ladder_chart
from ...ladder import cpu
from ...ladder import table as tables
from ...ladder.run import Ladder, Progress, climb
from ...ladder.run import steps as ladder_steps
from ..charts.traffic import traffic_chart
from ..page import Charts, number, readouts, table
from ..traffic import traffic

TITLE = "What it costs"
INTRODUCTION = """
<p>Softmax does little arithmetic on every number it fetches, so on any modern machine it costs what its traffic
costs. Three passes over a matrix too large for the caches fetch it three times. The online algorithm fetches it
twice; where a row fits on the chip, or where the next step is fused in, once.</p>"""


def view(rows: int, columns: int, copies: int, dtype: str, gigabytes_per_second: float) -> list[str | Charts]:
    """The traffic of every way, in bytes and in milliseconds at a given bandwidth."""
    ways = traffic(rows, columns, copies, dtype, gigabytes_per_second)
    return [
        Charts((f"{rows} × {columns}, {copies} times, {dtype}: bytes through memory", traffic_chart(ways))),
        readouts((f"{_reads(way.reads)}", f"{way.read_bytes / 1e9:.2f} GB") for way in ways),
        table(
            ("way", "reads", "read", "written", f"at {number(gigabytes_per_second)} GB/s"),
            [
                (
                    way.way,
                    str(way.reads),
                    f"{way.read_bytes / 1e9:.2f} GB",
                    f"{way.written_bytes / 1e9:.2f} GB",
                    f"{way.milliseconds:.3g} ms",
                )
                for way in ways
            ],
            "Traffic, and the least time it takes",
        ),
    ]


LADDER = """
<p>So much for arithmetic. The ladder is the same computation in several versions, from naive to fused, each with one
idea more than the one before. The button checks every one against float64 and then times it, which takes a few
seconds of all cores.</p>"""
MEASURED = (1024, 16384)
"""Rows and columns of the ladder that the button measures: a few seconds on two cores."""


def steps() -> int:
    """How often `measure` reports progress."""
    return ladder_steps("cpu", compiled=False)


def missing() -> str | None:
    """Why the ladder cannot be measured here; None when it can."""
    return cpu.missing()


def measure(progress: Progress) -> Ladder:
    """The CPU ladder on this machine, checked and timed now."""
    return climb("cpu", *MEASURED, "float32", progress, compiled=False)


def ladder_view(ladder: Ladder) -> list[str | Charts]:
    """A measured ladder: chart, table, and what follows from it."""
    remarks = "".join(f"<li>{remark}</li>" for remark in tables.remarks(ladder))
    return [
        Charts(("Fraction of copy, and speed relative to naive", ladder_chart(ladder))),
        table(tables.HEADINGS, tables.lines(ladder), tables.title(ladder)),
        f"<ul>{remarks}</ul>",
    ]


def _reads(count: int) -> str:
    return "1 read" if count == 1 else f"{count} reads"


def default() -> list[str | Charts]:
    """The pieces at the default settings."""
    return view(4096, 4096, 32, "fp16", 4250.0)

"""What it costs: bytes by arithmetic, then the ladder by measurement."""

from __future__ import annotations

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


def _reads(count: int) -> str:
    return "1 read" if count == 1 else f"{count} reads"


def default() -> list[str | Charts]:
    """The pieces at the default settings."""
    return view(4096, 4096, 32, "fp16", 4250.0)

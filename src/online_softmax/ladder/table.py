"""A ladder as a table, as data, and in one sentence or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .run import Ladder, Measured

HEADINGS = ("version", "reads of the row", "key idea", "time", "relative speed", "usual claim", "fraction of copy")


def title(ladder: Ladder) -> str:
    """What was measured, on what."""
    setting = ", ".join(f"{name} {value}" for name, value in ladder.setting.items())
    size = f"{ladder.rows} × {ladder.columns} {ladder.dtype}"
    return f"{size} on {ladder.device} ({setting}); a copy takes {milliseconds(ladder.copy_seconds)}"


def lines(ladder: Ladder) -> list[tuple[str, ...]]:
    """One line a rung."""
    return [_line(rung) for rung in ladder.rungs]


def _line(rung: Measured) -> tuple[str, ...]:
    name = rung.name if rung.error <= 1 else f"{rung.name} (wrong here)"
    return (
        name,
        rung.reads,
        rung.idea,
        milliseconds(rung.seconds),
        f"{rung.relative:.1f}×",
        rung.claim,
        f"{rung.of_copy:.2f}",
    )


def remarks(ladder: Ladder) -> list[str]:
    """The comparisons the ladder is there for."""
    three, online, fused = ladder.rung("three-pass"), ladder.rung("online"), ladder.rung("fused")
    unfused = ladder.rung("online, then a loss")
    found = [
        f"online against three-pass: {three.seconds / online.seconds:.2f}× (a third of the reads saved)",
        f"fused against online followed by a loss: {unfused.seconds / fused.seconds:.2f}×",
    ]
    if any(rung.name == "online, by element" for rung in ladder.rungs):
        element = ladder.rung("online, by element")
        found.insert(1, f"online against online by element: {element.seconds / online.seconds:.2f}×")
    return found


def records(ladders: Sequence[Ladder]) -> list[dict[str, Any]]:
    """One record a shape, for a file of JSON lines."""
    return [
        {"record": "ladder", **ladder._asdict(), "rungs": [rung._asdict() for rung in ladder.rungs]}
        for ladder in ladders
    ]


def milliseconds(seconds: float) -> str:
    """A time with three significant digits."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else f"{seconds * 1e3:.0f} ms"

"""What the commands print with: tables by rich where it is installed, by hand where it is not, and JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path


def fail(message: object) -> int:
    """Print one plain line on standard error; the exit status of bad input."""
    print(f"online-softmax: {message}", file=sys.stderr)
    return 2


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: frozenset[int] = frozenset()) -> None:
    """Print a table: columns are aligned right, those in `left` left."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        _print_plain(headings, rows, left)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index in left else "right", no_wrap=index not in left)
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)


def _print_plain(headings: Sequence[str], rows: Sequence[Sequence[str]], left: frozenset[int]) -> None:
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in (headings, *rows):
        cells = [c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        print("  ".join(cells).rstrip())


def write_json(value: object, path: str) -> None:
    """Write nested NamedTuples to a file, or print them for "-".

    Numbers that JSON cannot hold become the strings that float() reads: "inf", "-inf", "nan".
    """
    text = json.dumps(_plain(value), indent=2, allow_nan=False)
    if path == "-":
        print(text)
    else:
        Path(path).write_text(text + "\n", encoding="utf-8")


def _plain(value: object) -> object:
    if hasattr(value, "_asdict"):
        return {key: _plain(part) for key, part in value._asdict().items()}
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value

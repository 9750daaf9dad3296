"""What commands print: tables, progress and errors; with rich where it is installed, else plain."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console


class CommandError(Exception):
    """A mistake of the user's, told in one line without a traceback."""


def note(text: str) -> None:
    """Tell how the work goes, apart from its results: on standard error."""
    print(text, file=sys.stderr, flush=True)


def _console(stream: TextIO | None) -> Console | None:
    """A rich console when the stream is a terminal and rich is installed, else None."""
    if stream is None or not stream.isatty():
        return None
    with suppress(ImportError):
        from rich.console import Console

        return Console(file=stream, highlight=False)
    return None


def facts(title: str, pairs: Mapping[str, object]) -> None:
    """Print names and values, one pair a line."""
    width = max(map(len, pairs), default=0)
    lines = [f"  {name.ljust(width)}  {value}" for name, value in pairs.items()]
    print("\n".join([title, *lines]) + "\n")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], figures: bool = True) -> None:
    """Print a table; the first column is text, and figures in the others stand to the right."""
    console = _console(sys.stdout)
    if console is None:
        print(plain_table(title, columns, rows, figures))
        return
    from rich.table import Table
    from rich.text import Text

    rich_table = Table(title=Text(title), title_justify="left")
    for index, column in enumerate(columns):
        rich_table.add_column(Text(column), justify="right" if index and figures else "left")
    for row in rows:
        rich_table.add_row(*(Text(cell) for cell in row))
    console.print(rich_table)


def plain_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], figures: bool = True) -> str:
    """The same table as plain text."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = [title]
    for row in (columns, ["-" * width for width in widths], *rows):
        cells = [row[0].ljust(widths[0])]
        align = str.rjust if figures else str.ljust
        cells += [align(cell, width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[str], None]]:
    """Give a function to call after each of `total` steps with a few words on the state of things.

    Progress goes to standard error: a bar on a terminal, otherwise a line for every tenth of the work.
    """
    console = _console(sys.stderr)
    if console is None:
        yield _plain_progress(label, total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, TextColumn("{task.fields[state]}"), console=console) as bar:
        task = bar.add_task(label, total=total, state="")
        yield lambda state: bar.update(task, advance=1, state=state)


def _plain_progress(label: str, total: int) -> Callable[[str], None]:
    done = 0

    def advance(state: str) -> None:
        nonlocal done
        done += 1
        if done * 10 // total > (done - 1) * 10 // total:
            note(f"{label}: {done} of {total}  {state}".rstrip())

    return advance

"""Writes measured ladders into a Markdown page: `python -m online_softmax.ladder.page docs/ladder.md`.

A table stands between `<!-- measured: FILE -->` and `<!-- end -->`, FILE being relative to the page's parent's parent
(the project): the JSON lines that `online-softmax ladder --json FILE` wrote.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from .run import Ladder, Measured
from .table import HEADINGS, lines, remarks, title

_PLACE = re.compile(r"(<!-- measured: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(text: str, project: Path) -> str:
    """The page with every table that has a file of results made anew; places without a file stay as they are."""

    def table(place: re.Match[str]) -> str:
        path = project / place[2]
        return f"{place[1]}{markdown(path)}{place[3]}" if path.exists() else place[0]

    return _PLACE.sub(table, text)


def markdown(path: Path) -> str:
    """The ladders of one file of results."""
    machine, *records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return f"\n{_machine(machine)}\n\n" + "".join(_markdown(_ladder(record)) for record in records)


def _markdown(ladder: Ladder) -> str:
    rows = [HEADINGS, ("---",) * len(HEADINGS), *lines(ladder)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"**{title(ladder)}**\n\n{table}\n\n" + "".join(f"- {remark}\n" for remark in remarks(ladder)) + "\n"


def _ladder(record: dict[str, Any]) -> Ladder:
    fields = {name: record[name] for name in Ladder._fields if name != "rungs"}
    return Ladder(**fields, rungs=tuple(Measured(**rung) for rung in record["rungs"]))


def _machine(record: dict[str, Any]) -> str:
    packages = record["packages"]
    versions = f"torch {packages['torch']}, NumPy {packages['numpy']}, commit {record['commit']}"
    return f"{record['machine']['processor']}; {versions}:"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(fill(page.read_text(encoding="utf-8"), page.resolve().parent.parent), encoding="utf-8")

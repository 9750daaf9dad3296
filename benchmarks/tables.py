"""Writes the benchmark's tables into README.md and DESIGN.md, from the files in results/.

Between ``<!-- bench:cpu -->`` and ``<!-- /bench -->`` stand the tables of ``results/cpu.jsonl``; after
the name a title may follow, or its beginning, and then only the tables so titled stand there (the
figures aimed at, "Targets", only so).  Run it after a new result; with ``--check`` it changes nothing,
and fails if a document is out of date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from online_softmax.bench import record, tables, targets

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = "README.md", "DESIGN.md"
NOT_YET = "Not measured yet.\n"  # what stands in the place of a file that is still to come
PLACE = re.compile(r"(<!-- bench:([\w-]+)(?: (.+?))? -->\n).*?(<!-- /bench -->)", re.DOTALL)


def updated(text: str, results: Path = RESULTS) -> str:
    """The document with every table as the results have it."""

    def fill(place: re.Match[str]) -> str:
        start, name, title, end = place.groups()
        path = results / f"{name}.jsonl"
        if not path.exists() and place.group(0) == start + NOT_YET + end:
            return place.group(0)
        return start + section(path, title or "") + end

    return PLACE.sub(fill, text)


def section(path: Path, title: str) -> str:
    """The tables of one file whose titles begin so, and what they were made with."""
    records = record.read(path)
    found = [*tables.of(records), targets.table(records)]
    chosen = [table for table in found if (table.title.startswith(title) if title else table.title != "Targets")]
    if not chosen:
        raise ValueError(f"{path.name} has no table {title!r}; it has {', '.join(table.title for table in found)}")
    facts = "; ".join(f"{name}: {value}" for name, value in tables.machine(records[0]).items())
    return "\n".join([f"{facts}.\n", *(tables.markdown(table) for table in chosen)])


def main() -> int:
    """Bring every document up to date, or with --check say which one is not."""
    code = 0
    for path in (ROOT / name for name in DOCUMENTS):
        text = path.read_text(encoding="utf-8")
        if updated(text) == text:
            continue
        if "--check" in sys.argv[1:]:
            print(f"{path.name}: the tables are older than benchmarks/results; run python benchmarks/tables.py")
            code = 1
        else:
            path.write_text(updated(text), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())

"""Tables from records: for the terminal, and as Markdown for the documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .compiling import NOT_COMPILED
from .record import Record, fraction_of_copy, workloads

OURS, OURS_NUMPY = "online-softmax", "online-softmax (NumPy)"
TENSOR_PEERS = "torch", "torch.compile", "torch fused", "torch .float()", "quack", "Liger"
ARRAY_PEERS = "SciPy", "NumPy"
FEW_ELEMENTS = 2**25  # a copy of fewer is over before the GPU is at speed: microseconds, not fractions
NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}


class Table(NamedTuple):
    """A title, the names of the columns, and the rows; the first column is text."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def of(records: Sequence[Record]) -> list[Table]:
    """Every table of a file of results.  One in which our own answer was wrong is left out."""
    groups: dict[str, list[Record]] = {}
    device = records[0]["device"]
    for record in workloads(records):
        groups.setdefault(_title(record, device), []).append(record)
    found = [
        _ratios(title, group) if device == "cpu" or "(times)" in title else _fractions(title, group)
        for title, group in groups.items()
        if not any({OURS, OURS_NUMPY} & set(record["wrong"]) for record in group)
    ]
    memory = [record for record in records if record["record"] == "memory"]
    return found + ([_memory(memory)] if memory else [])


def _title(record: Record, device: str) -> str:
    if record["way"] == "call":
        return "Small calls from Python (times)"
    if record["way"] == "graph":
        return "Small calls inside a CUDA graph (times)"
    if device == "cpu":
        return "CPU"
    if record["rows"] * record["columns"] < FEW_ELEMENTS and record["rows"] <= 64:
        return "Few long rows (times)"
    return ", ".join(filter(None, [record["operation"], record["variant"]]))


def machine(record: Record) -> dict[str, str]:
    """What the figures depend on: the machine, the versions and the commit."""
    facts = record["machine"]
    wanted = ("GPU", "GPU memory") if record["device"] == "cuda" else ("processor", "cores available", "huge pages")
    kernels = record["implementations"].get(record["device"], {}).get("detail", "")
    versions = ", ".join(f"{library} {version}" for library, version in record["peers"].items())
    return {
        **{name: str(facts[name]) for name in wanted if name in facts},
        "our kernels": kernels,
        "versions": f"online-softmax {record['online-softmax']}, {versions}",
        "commit": f"{record['commit']}, {record['date']}",
    }


def _label(record: Record) -> str:
    inner = f"{record['inner']} x " if record.get("inner") else ""
    work = f"{record['operation']} {record['rows']} x {inner}{record['columns']}"
    return ", ".join(filter(None, [work, NAMES[record["dtype"]], record["variant"]]))


def duration(seconds: float) -> str:
    """Milliseconds, or microseconds for less than one."""
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"


def times_ours(record: Record, peer: str) -> float | None:
    """How many times as long as ours a peer takes, on the same kind of array; None if either is missing."""
    ours = record["seconds"].get(OURS_NUMPY if peer in ARRAY_PEERS else OURS)
    theirs = record["seconds"].get(peer)
    return theirs / ours if ours and theirs else None


def times_yardstick(record: Record) -> tuple[str, float] | None:
    """How many times as long as a plain maximum or copy of the same bytes, or as one product, our best way takes."""
    ours = [record["seconds"][library] for library in (OURS, OURS_NUMPY) if library in record["seconds"]]
    name = next((name for name in ("product", "maximum", "copy") if name in record["yardsticks"]), None)
    if not ours or name is None:
        return None
    return name, min(ours) / record["yardsticks"][name]


def _ratios(title: str, group: list[Record]) -> Table:
    """Our times, each peer's as a multiple of them, and ours as a multiple of the yardstick's."""
    tensor = [peer for peer in TENSOR_PEERS if any(_took_part(record, peer) for record in group)]
    array = [peer for peer in ARRAY_PEERS if any(_took_part(record, peer) for record in group)]
    columns = ["work", "ours", *tensor, *(["ours on arrays", *array] if array else []), "ours to the yardstick"]
    rows = []
    for record in group:
        cells = [_label(record), _time(record, OURS), *(_ratio(record, peer) for peer in tensor)]
        if array:
            cells += [_time(record, OURS_NUMPY), *(_ratio(record, peer) for peer in array)]
        distance = times_yardstick(record)
        rows.append((*cells, f"{distance[1]:.2f} {distance[0]}" if distance else "–"))
    if not any(record["yardsticks"] for record in group):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Table(title, tuple(columns), rows)


def _took_part(record: Record, library: str) -> bool:
    return library in record["seconds"] or library in record["wrong"]


def _time(record: Record, library: str) -> str:
    return duration(record["seconds"][library]) if library in record["seconds"] else "–"


def _ratio(record: Record, peer: str) -> str:
    ratio = times_ours(record, peer)
    return _without(record, peer) if ratio is None else f"{ratio:.2g}×" if ratio < 10 else f"{ratio:.0f}×"


def _without(record: Record, library: str) -> str:
    """What stands where there is no figure."""
    if library in record["wrong"]:
        return "wrong"
    return "fails" if record["refused"].get(library, NOT_COMPILED) != NOT_COMPILED else "–"


def _fractions(title: str, group: list[Record]) -> Table:
    """Everyone's fraction of the copy, and ours against the fastest peer."""
    peers = [
        peer
        for peer in TENSOR_PEERS
        if any(_took_part(record, peer) or _without(record, peer) == "fails" for record in group)
    ]
    maximum = any("maximum" in record["yardsticks"] for record in group)
    memory = title.startswith("cross_entropy")
    columns = ["shape", "ours", *peers, *(["maximum"] if maximum else []), "fastest peer"]
    columns += ["extra memory", "torch's"] if memory else []
    rows = []
    for record in group:
        cells = [f"{NAMES[record['dtype']]} {record['rows']} x {record['columns']}"]
        cells += [_fraction(record, library) for library in (OURS, *peers)]
        if maximum:
            seconds = record["yardsticks"]["maximum"]
            cells.append(f"{record['traffic'] / 2 * record['yardsticks']['copy'] / seconds:.2f}")
        ratio = fastest_peer(record)
        cells.append("–" if ratio is None else f"{ratio:.2f}×")
        if memory:
            cells += [_copies(record, library) for library in (OURS, "torch")]
        rows.append(tuple(cells))
    return Table(f"{title}, fraction of copy", tuple(columns), rows)


def _fraction(record: Record, library: str) -> str:
    fraction = fraction_of_copy(record, library)
    return _without(record, library) if fraction is None else f"{fraction:.2f}"


def fastest_peer(record: Record) -> float | None:
    """The time of the fastest peer as a multiple of ours."""
    ratios = [ratio for peer in (*TENSOR_PEERS, *ARRAY_PEERS) if (ratio := times_ours(record, peer))]
    return min(ratios, default=None)


def copies(record: Record, library: str) -> float | None:
    """Peak extra memory in copies of the logits."""
    size = 4 if record["dtype"] == "float32" else 2
    peak = record["memory"].get(library)
    return None if peak is None else peak / (record["rows"] * record["columns"] * size)


def _copies(record: Record, library: str) -> str:
    found = copies(record, library)
    return "–" if found is None else f"{found:.2f}"


def _memory(group: list[Record]) -> Table:
    rows: list[tuple[str, ...]] = [
        (_label(record), _copies(record, OURS), _copies(record, "torch")) for record in group
    ]
    return Table("Peak extra memory, in copies of the logits or scores", ("work", "ours", "torch"), rows)


def markdown(table: Table) -> str:
    """The table in Markdown, its title in bold above it."""
    lines = [f"**{table.title}**", "", _line(table.columns), _line(["---"] + ["---:"] * (len(table.columns) - 1))]
    return "\n".join(lines + [_line(row) for row in table.rows]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"

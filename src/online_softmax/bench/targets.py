"""Holds a file of results against the figures that this project set itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from . import products
from .record import Record, fraction_of_copy, workloads
from .tables import FEW_ELEMENTS, NAMES, OURS, Table, copies, fastest_peer, times_ours
from .workload import VOCABULARIES

LONGEST_KEPT = int(3.5 * 2**20)  # bytes of a row that a cluster of blocks holds in shared memory
Measure = Callable[[Record], float | None]


class Target(NamedTuple):
    """A figure wanted of every record it is measured on; `most` means at most, else at least."""

    figure: str
    limit: float
    measure: Measure
    records: list[Record]
    most: bool = False

    def row(self) -> tuple[str, ...]:
        """Figure, wanted, measured (the worst, with its shape) and whether it is met."""
        wanted = f"{'≤' if self.most else '≥'} {self.limit:.4g}"
        found = [(value, record) for record in self.records if (value := self.measure(record)) is not None]
        if not found:
            return self.figure, wanted, "not measured", "–"
        value, record = (max if self.most else min)(found, key=lambda pair: pair[0])
        met = value <= self.limit if self.most else value >= self.limit
        shape = f"{NAMES[record['dtype']]} {record['rows']} x {record['columns']}"
        return self.figure, wanted, f"{value:.2f} at {shape}", "yes" if met else "NO"


def table(records: Sequence[Record]) -> Table:
    """Each figure, what is wanted, what was measured, and whether that is enough."""
    targets = cuda(records) if records[0]["device"] == "cuda" else cpu(records)
    return Table("Targets", ("figure", "wanted", "measured", "met"), [target.row() for target in targets])


def against(peer: str) -> Measure:
    """How many times as long as ours the peer takes."""
    return lambda record: times_ours(record, peer)


def fraction(record: Record) -> float | None:
    """Our fraction of the copy."""
    return fraction_of_copy(record, OURS)


def _of_maximum(record: Record) -> float | None:
    ours = [seconds for library, seconds in record["seconds"].items() if library.startswith(OURS)]
    maximum = record["yardsticks"].get("maximum")
    return min(ours) / maximum if ours and maximum else None


def _memory(record: Record) -> float | None:
    return copies(record, OURS)


def cpu(records: Sequence[Record]) -> list[Target]:
    """The CPU's figures."""

    def of(operation: str, columns: int = 32000, **fields: object) -> list[Record]:
        return workloads(records, operation=operation, columns=columns, **fields)

    logsumexp = of("logsumexp")
    found = [
        Target("logsumexp, torch / ours", 10, against("torch"), logsumexp),
        Target("logsumexp, SciPy / ours", 25, against("SciPy"), logsumexp),
        Target("logsumexp, ours / maximum", 1.3, _of_maximum, logsumexp, most=True),
    ]
    for name in "softmax", "log_softmax":
        existing, new = of(name, variant="existing output"), of(name, variant="")
        found += [
            Target(f"{name}, existing output, torch / ours", 1, against("torch"), existing),
            Target(f"{name}, new output, torch / ours", 2, against("torch"), new),
            Target(f"{name}, new output, SciPy / ours", 3, against("SciPy"), new),
        ]
    axis_0 = of("softmax", 4096, variant="axis 0")
    losses = workloads(records, operation="cross_entropy", variant="", way="cold")
    small = workloads(records, way="call")
    found += [
        Target("softmax along axis 0, torch / ours", 1, against("torch"), axis_0),
        Target("softmax along axis 0, SciPy / ours", 4, against("SciPy"), axis_0),
        Target("cross_entropy fp32, torch / ours", 5, against("torch"), _having(losses, "float32")),
        Target("cross_entropy bf16, torch / ours", 4, against("torch"), _having(losses, "bfloat16")),
        Target("small softmax and backward, torch / ours", 1 / 3, against("torch"), _named(small, "softmax forward")),
        Target("small softmax of an array, SciPy / ours", 3, against("SciPy"), _named(small, "softmax")),
    ]
    found += _around_products(records)
    memory = [record for record in records if record["record"] == "memory"]
    losses = [record for record in memory if record["operation"] == "cross_entropy"]
    in_place = [record for record in losses if record["variant"] == "inplace"]
    return found + _memory_targets([record for record in losses if record["variant"] != "inplace"], in_place)


def _around_products(records: Sequence[Record]) -> list[Target]:
    """linear_cross_entropy and attention on the CPU."""
    memory = [record for record in records if record["record"] == "memory"]
    linear, attention = (workloads(records, operation=name) for name in products.OPERATIONS)
    of_linear, of_attention = ([r for r in memory if r["operation"] == name] for name in products.OPERATIONS)
    whole = [record for record in attention if not record["variant"]]

    def of_whole(record: Record) -> float | None:
        same = [r for r in whole if (r["rows"], r["columns"]) == (record["rows"], record["columns"])]
        return record["seconds"][OURS] / same[0]["seconds"][OURS] if same else None

    return [
        Target("linear_cross_entropy, torch / ours", 1, against("torch"), linear),
        Target("linear_cross_entropy, torch fused / ours", 1, against("torch fused"), linear),
        Target("linear_cross_entropy, memory, ours / torch", 0.25, _share_of_memory, of_linear, most=True),
        Target("attention, torch fused / ours", 1 / 1.5, against("torch fused"), whole),
        Target("attention, plain torch / ours", 1, against("torch"), whole),
        Target("attention, memory, ours / plain torch", 0.2, _share_of_memory, of_attention, most=True),
        Target("causal attention, ours / all of it", 0.7, of_whole, [r for r in attention if r["variant"]], most=True),
    ]


def _share_of_memory(record: Record) -> float | None:
    ours, torchs = (record["memory"].get(library) for library in (OURS, "torch"))
    return ours / torchs if ours is not None and torchs else None


def _memory_targets(usual: list[Record], in_place: list[Record]) -> list[Target]:
    # A few per cent of the logits are left for what is kept a row.
    return [
        Target("cross_entropy, copies of the logits", 1.05, _memory, usual, most=True),
        Target("cross_entropy in place, copies of the logits", 0.05, _memory, in_place, most=True),
    ]


def _having(records: Iterable[Record], *dtypes: str) -> list[Record]:
    return [record for record in records if record["dtype"] in dtypes]


def _named(records: Iterable[Record], start: str) -> list[Record]:
    return [record for record in records if record["operation"].startswith(start)]


def cuda(records: Sequence[Record]) -> list[Target]:
    """The GPU's figures."""
    cold = [r for r in workloads(records, way="cold") if r["rows"] * r["columns"] >= FEW_ELEMENTS]
    found = _row_kernels(cold)
    losses = [r for r in cold if r["operation"] == "cross_entropy" and r["columns"] in VOCABULARIES]

    def loss(variant: str, *dtypes: str) -> list[Record]:
        return _having([r for r in losses if r["variant"] == variant], *dtypes)

    usual, half = loss("", "bfloat16", "float32"), loss("", "bfloat16")
    found += [
        Target("cross_entropy", 0.92, fraction, usual),
        Target("cross_entropy, all options", 0.85, fraction, loss("all options", "bfloat16", "float32")),
        Target("cross_entropy, reduction none", 0.9, fraction, loss("none", "bfloat16")),
        Target("cross_entropy, fp16", 0.9, fraction, loss("", "float16")),
        *_memory_targets(usual, loss("inplace", "bfloat16")),
        Target("any shape, fastest peer / ours", 0.98, fastest_peer, cold),
    ]
    for peer, limit in {"quack": 1.5, "Liger": 2, "torch": 3.8, "torch .float()": 10}.items():
        found.append(Target(f"cross_entropy bf16, {peer} / ours", limit, against(peer), half))
    return found + _few_and_small(records)


def _row_kernels(cold: list[Record]) -> list[Target]:
    """Fractions of copy of everything but the loss."""
    found = []
    for name in "softmax", "log_softmax":
        forward = [r for r in cold if r["operation"] == name and r["columns"] >= 1024]
        backward = [r for r in cold if r["operation"] == f"{name} backward"]
        short = [r for r in forward if r["columns"] <= 262144]
        long = [r for r in forward if r["columns"] > 262144]
        kept = [r for r in long if r["columns"] * (4 if r["dtype"] == "float32" else 2) <= LONGEST_KEPT]
        found += [
            Target(f"{name} to 262144", 0.95, fraction, short),
            Target(f"{name} beyond, row to 3.5 MB", 0.85, fraction, kept),
            Target(f"{name} beyond, longer rows", 0.6, fraction, [r for r in long if r not in kept]),
            Target(f"{name} backward to 262144", 0.93, fraction, [r for r in backward if r["columns"] <= 262144]),
            Target(f"{name} backward beyond", 0.55, fraction, [r for r in backward if r["columns"] > 262144]),
        ]
    logsumexp = [r for r in cold if r["operation"] == "logsumexp"]
    return [*found, Target("logsumexp, ours / maximum", 1, _of_maximum, logsumexp, most=True)]


def _few_and_small(records: Sequence[Record]) -> list[Target]:
    """Few long rows, and small calls from Python and inside a graph."""
    found = []
    few = workloads(records, operation="softmax", columns=262144, dtype="bfloat16")
    for rows, limit in {1: 4, 8: 4, 64: 2.5}.items():
        these = [r for r in few if r["rows"] == rows]
        found.append(Target(f"softmax {rows} x 262144, torch / ours", limit, against("torch"), these))
        found.append(Target(f"softmax {rows} x 262144, quack / ours", 1, against("quack"), these))
    for way, limits in {"call": (0.5, 1), "graph": (1, 1)}.items():
        for operation, limit in zip(("softmax", "cross_entropy"), limits, strict=True):
            small = workloads(records, operation=operation, way=way)
            found.append(Target(f"{operation} 8 x 128, {way}, torch / ours", limit, against("torch"), small))
    return found

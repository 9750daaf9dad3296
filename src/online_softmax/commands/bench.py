"""``online-softmax bench``: every operation against the other libraries installed, checked and timed."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from .. import terminal
from ..bench import record, tables, targets
from ..bench.compiling import NOT_COMPILED
from ..bench.products import OPERATIONS
from ..bench.record import Record
from ..bench.run import Runner, cpu_memory
from ..bench.tables import OURS, OURS_NUMPY
from ..bench.workload import TRAFFIC, Workload, cpu_workloads, cuda_workloads
from ._files import check_apart, to_write

QUICK_DIVISOR = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="smaller shapes and fewer rounds, under 30 seconds")
    parser.add_argument("--only", metavar="OPERATION", help=f"one of: {', '.join(TRAFFIC)}")
    parser.add_argument(
        "--minutes", type=float, metavar="N", help="start nothing after N minutes: the least important shapes come last"
    )
    parser.add_argument(
        "--everywhere",
        action="store_true",
        help="on cuda: time torch.compile and quack on every shape, though they compile anew for each",
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write results as JSON lines while they are made; in a folder, to a file named after the device",
    )
    parser.add_argument("--plot", metavar="FILE.svg", help="draw the fraction of copy against row length")


def run(args: argparse.Namespace) -> int:
    """Measure, print and write; 1 if an answer of ours was wrong, else 0."""
    if args.only is not None and args.only not in TRAFFIC:
        raise terminal.CommandError(f"--only is {args.only!r}; wanted one of {', '.join(TRAFFIC)}")
    if args.minutes is not None and not args.minutes > 0:
        raise terminal.CommandError(f"--minutes is {args.minutes:g}; wanted more than 0")
    path, picture = _json_file(args.json, args.device), to_write("--plot", args.plot, ".svg")
    check_apart(json=path, plot=picture)
    if picture:
        from ..bench import plot
    work = _workloads(args.device, args.quick)
    work = [w for w in work if args.only in (None, w.operation)]
    if path is None:
        records = _measure(args, work, None)
    else:
        with path.open("w", encoding="utf-8") as file:
            records = _measure(args, work, file)
    terminal.facts("Machine", tables.machine(records[0]))
    for table in tables.of(records):
        terminal.table(*table)
    if not args.quick and args.only is None:
        terminal.table(*targets.table(records))
    if picture:
        plot.draw(records, picture)
    return _complain(records)


def _json_file(given: str | None, device: str) -> Path | None:
    """The file that --json names; in a folder, one named after the device."""
    if given and Path(given).is_dir():
        given = str(Path(given) / record.file_name(device))
    return to_write("--json", given)


def _workloads(device: str, quick: bool) -> list[Workload]:
    if device == "cpu":
        return cpu_workloads(QUICK_DIVISOR if quick else 1)
    import torch

    if not torch.cuda.is_available():
        raise terminal.CommandError("--device is cuda, but torch sees no CUDA device")
    # An eighth of the largest input, copies and float32 forms of it included, must fit.
    fits = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory // 256
    elements = 2**28
    while elements > fits:
        elements //= 2
    return cuda_workloads(elements // QUICK_DIVISOR if quick else elements)


def _measure(args: argparse.Namespace, work: list[Workload], file: TextIO | None) -> list[Record]:
    records: list[Record] = []

    def keep(made: Record) -> None:
        records.append(made)
        if file:
            print(json.dumps(made), file=file, flush=True)

    keep(record.machine(args.device, args.quick))
    runner = Runner(args.device, args.quick, args.everywhere)
    large = [w for w in work if (w.operation == "cross_entropy" and w.columns == 32000) or w.operation in OPERATIONS]
    in_processes = [] if args.device == "cuda" or args.quick else large
    end = float("inf") if args.minutes is None else time.monotonic() + 60 * args.minutes
    with terminal.progress(f"bench {args.device}", len(work) + len(in_processes)) as advance:
        for done, workload in enumerate(work):
            if time.monotonic() >= end:
                _skip(work[done:], args.minutes, keep)
                return records
            try:
                keep(runner.measure(workload))
            except RuntimeError as error:  # out of memory, or a failed capture: the other workloads go on
                keep({"record": "failed", **workload._asdict(), "reason": str(error).partition("\n")[0]})
            advance(str(workload))
        for workload in in_processes:
            keep(cpu_memory(workload))
            advance(f"peak memory of {workload}")
    return records


def _skip(work: Sequence[Workload], minutes: float, keep: Callable[[Record], None]) -> None:
    """Record and say what there was no time for."""
    for workload in work:
        keep({"record": "skipped", **workload._asdict(), "reason": f"{minutes:g} minutes were over"})
    kinds = Counter(" ".join(filter(None, (w.operation, w.dtype, w.variant))) for w in work)
    what = ", ".join(f"{kind} ({count})" for kind, count in kinds.items())
    terminal.note(f"{minutes:g} minutes were over before {len(work)} of the shapes: {what}")


def _complain(records: list[Record]) -> int:
    """Say who was wrong or could not; 1 if that was us."""
    code = 0
    for made in records:
        if made["record"] == "failed":
            terminal.note(f"not measured: {_name(made)}: {made['reason']}")
            code = 1
    for made in record.workloads(records):
        name = _name(made)
        for library in made["wrong"]:
            terminal.note(f"{library} is wrong at {name}: error {made['error'][library]:.1e}; not timed")
        for library, reason in made["refused"].items():
            if reason != NOT_COMPILED:
                terminal.note(f"{library} refuses {name}: {reason}")
        if {OURS, OURS_NUMPY} & {*made["wrong"], *made["refused"]}:
            code = 1
    return code


def _name(made: Record) -> Workload:
    return Workload(**{field: made[field] for field in Workload._fields})

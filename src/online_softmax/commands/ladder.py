"""`online-softmax ladder`: softmax from naive to fused, every rung checked, then timed in one run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..terminal import CommandError, note, progress, table

if TYPE_CHECKING:
    from ..ladder.run import Ladder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rows", type=int, metavar="M", help="rows (with --cols; two telling shapes by default)")
    parser.add_argument("--cols", type=int, metavar="N", help="elements a row")
    parser.add_argument("--dtype", default="float32", help="float32, float64; on cuda float16 and bfloat16 too")
    parser.add_argument("--json", type=Path, metavar="F", help="write the figures as JSON lines")
    parser.add_argument("--plot", type=Path, metavar="F.svg", help="draw the fraction of copy of every rung")
    parser.add_argument(
        "--no-compile", action="store_true", help="leave torch.compile out: it takes a while to compile"
    )


def run(arguments: argparse.Namespace) -> int:
    """Climb, print, write; 1 if a rung was wrong."""
    from ..ladder import table as tables
    from ..ladder.run import DEVICES, WrongRungError, climb, steps

    module = DEVICES[arguments.device]
    shapes = _shapes(arguments, module.SHAPES)
    if arguments.dtype not in module.DTYPES:
        raise CommandError(f"--dtype: one of {', '.join(module.DTYPES)} is wanted, got {arguments.dtype}")
    if (reason := module.missing()) is not None:
        raise CommandError(f"--device {arguments.device}: {reason}")
    _check_files(arguments)

    compiled = not arguments.no_compile
    ladders: list[Ladder] = []
    for rows, columns in shapes:
        try:
            with progress(f"{rows} × {columns}", steps(arguments.device, compiled)) as advance:
                ladders.append(climb(arguments.device, rows, columns, arguments.dtype, advance, compiled))
        except WrongRungError as error:
            note(f"online-softmax ladder: {error}")
            return 1
        except MemoryError:
            raise CommandError(f"{rows} × {columns} does not fit this machine's memory") from None
    for ladder in ladders:
        table(tables.title(ladder), tables.HEADINGS, tables.lines(ladder))
        print("\n".join(tables.remarks(ladder)) + "\n")
    print("Every rung was checked against float64 before it was timed.")
    _write(arguments, ladders)
    return 0


def _shapes(arguments: argparse.Namespace, default: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    if arguments.rows is None and arguments.cols is None:
        return default
    rows = default[0][0] if arguments.rows is None else arguments.rows
    columns = default[0][1] if arguments.cols is None else arguments.cols
    for name, value in (("--rows", rows), ("--cols", columns)):
        if value < 1:
            raise CommandError(f"{name}: 1 or more is wanted, got {value}")
    return ((rows, columns),)


def _check_files(arguments: argparse.Namespace) -> None:
    """Find out before the measurement, not after it, that its figures cannot be kept."""
    for option, path in (("--json", arguments.json), ("--plot", arguments.plot)):
        if path is not None and not path.absolute().parent.is_dir():
            raise CommandError(f"{option}: there is no directory {path.parent}")
    if arguments.plot:
        from ..charts import require_altair

        try:
            require_altair()
        except ImportError as error:
            raise CommandError(f"--plot: {error}") from None


def _write(arguments: argparse.Namespace, ladders: list[Ladder]) -> None:
    if arguments.json:
        from ..bench.record import commit
        from ..ladder.table import records
        from .doctor import examine

        machine = {"record": "machine", "device": arguments.device, "commit": commit(), **examine()}
        lines = [machine, *records(ladders)]
        arguments.json.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    if arguments.plot:
        from ..charts import write_svg
        from ..charts.ladder import ladders_chart

        write_svg(ladders_chart(ladders), arguments.plot)

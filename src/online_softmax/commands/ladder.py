"""`online-softmax ladder`: softmax from naive to fused, every rung checked, then timed in one run."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..terminal import CommandError, note, progress, table
from ._files import check_apart, to_draw, to_write

if TYPE_CHECKING:
    from ..ladder.run import Ladder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rows", type=int, metavar="M", help="rows, with --cols (two telling shapes by default)")
    parser.add_argument("--cols", type=int, metavar="N", help="elements a row, with --rows")
    parser.add_argument("--dtype", default="float32", help="float32, float64; on cuda float16 and bfloat16 too")
    parser.add_argument("--json", metavar="F", help="write the figures as JSON lines")
    parser.add_argument("--plot", metavar="F.svg", help="draw the fraction of copy of every rung")
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
    json_file, plot = to_write("--json", arguments.json), to_draw("--plot", arguments.plot)
    check_apart(json=json_file, plot=plot)

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
    if json_file:
        _write(json_file, arguments.device, ladders)
    if plot:
        _draw(plot, ladders)
    return 0


def _shapes(arguments: argparse.Namespace, default: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    given = {"--rows": arguments.rows, "--cols": arguments.cols}
    if set(given.values()) == {None}:
        return default
    for name, value in given.items():
        if value is None:
            raise CommandError(f"{name} is missing: --rows and --cols go together")
        if value < 1:
            raise CommandError(f"{name}: 1 or more is wanted, got {value}")
    if arguments.rows * arguments.cols > sys.maxsize // 8:  # MemoryError for NumPy to that point, ValueError beyond
        raise CommandError(f"{arguments.rows} × {arguments.cols} does not fit this machine's memory")
    return ((arguments.rows, arguments.cols),)


def _write(path: Path, device: str, ladders: list[Ladder]) -> None:
    from ..bench.record import commit
    from ..ladder.table import records
    from .doctor import examine

    machine = {"record": "machine", "device": device, "commit": commit(), **examine()}
    lines = [machine, *records(ladders)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _draw(path: Path, ladders: list[Ladder]) -> None:
    from ..charts import write_svg
    from ..charts.ladder import ladders_chart

    write_svg(ladders_chart(ladders), path)

"""`online-softmax trace`: the online normaliser of one random row, block by block, as a table."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from ..terminal import CommandError, table
from ..trace import Trace, trace
from ._files import check_apart, to_draw, to_write
from ._json import write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--n", type=int, default=64, help="number of logits, drawn from a normal distribution (64)")
    parser.add_argument("--scale", type=float, default=1.0, help="what the logits are multiplied by (1)")
    parser.add_argument("--block", type=int, help="elements an update takes in (8, or --n where that is less)")
    parser.add_argument("--seed", type=int, default=17, help="seed of numpy.random.default_rng (17)")
    parser.add_argument("--dtype", choices=("float16", "float32", "float64"), default="float64")
    parser.add_argument(
        "--json", metavar="F", help="write the whole trace to this file as well ('-' prints it instead)"
    )
    parser.add_argument("--plot", metavar="F.svg", help="draw the running maximum and normaliser as well")


def run(arguments: argparse.Namespace) -> int:
    """Trace one row and print it."""
    if arguments.n < 1:
        raise CommandError(f"--n: a number of logits of at least 1 is wanted, got {arguments.n}")
    if arguments.seed < 0:
        raise CommandError(f"--seed: 0 or more is wanted, got {arguments.seed}")
    printed = arguments.json == "-"
    json = None if printed else to_write("--json", arguments.json)
    plot = to_draw("--plot", arguments.plot)
    check_apart(json=json, plot=plot)
    result = _trace(arguments)
    if plot:
        _plot(result, plot)
    if json or printed:
        write_json(result, json)
    if not printed:
        print_trace(result)
    return 0


def _trace(arguments: argparse.Namespace) -> Trace:
    try:
        row = arguments.scale * np.random.default_rng(arguments.seed).standard_normal(arguments.n)
    except (MemoryError, ValueError):  # ValueError: more than any address could tell
        raise CommandError(f"--n: {arguments.n} logits do not fit this machine's memory") from None
    try:
        return trace(row, block=arguments.block, dtype=arguments.dtype)
    except ValueError as error:
        raise CommandError(f"--{error}") from None


def print_trace(result: Trace) -> None:
    """Print one line a block, then the totals."""
    rows = [
        (
            f"{block.start}..{block.stop - 1}",
            f"{block.block_m:.4f}",
            f"{block.m_before:.4f}",
            f"{block.m_after:.4f}",
            f"× {block.factor:.4f}" if block.rescaled else "",
            f"{block.s_before:.6f}",
            f"{block.s_after:.6f}",
        )
        for block in result.blocks
    ]
    headings = ("elements", "block maximum", "m before", "m after", "rescaled", "s before", "s after")
    table(f"{result.length} logits, {result.dtype}, in blocks of {result.block}", headings, rows)
    for name, value in totals(result):
        print(f"{name:<22}{value}")


def totals(result: Trace) -> list[tuple[str, str]]:
    """The totals of a trace, named and formatted: the command and the workshop show the same."""
    finite = "finite" if result.naive_is_finite else "not finite"
    return [
        ("block updates", str(result.updates)),
        ("rescales", str(result.rescales)),
        ("maximum", f"{result.maximum:.8g}"),
        ("online normaliser", f"{result.online:.15g}"),
        ("two-pass normaliser", f"{result.two_pass:.15g}"),
        ("relative difference", f"{result.relative_difference:.2e}"),
        ("log-sum-exp", f"{result.logsumexp:.15g}"),
        ("naive sum of exp(x)", f"{result.naive_sum:.8g} ({finite})"),
    ]


def _plot(result: Trace, path: Path) -> None:
    from ..charts import write_svg
    from ..charts.trace import trace_chart

    write_svg(trace_chart(result), path)

"""``online-softmax demo``: trains a next-word model, and compares every loss with torch's."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from .. import terminal
from ..bench.memory import peak_extra
from ..demo import curve, loss_step, text, training

MARKER = "written by online-softmax demo"
CURVE, REPORT = "learning-curve.svg", "report.json"
LARGEST_DIFFERENCE = 1e-5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--steps", type=int, default=180, help="training steps (default 180)")
    parser.add_argument("--output", default="demo-output", metavar="DIR", help="where the results go")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Train, compare and write; 1 if a loss differs from torch's, else 0."""
    if args.steps < 1:
        raise terminal.CommandError(f"--steps is {args.steps}; wanted at least 1")
    if args.output == "":
        raise terminal.CommandError("--output is ''; wanted the name of a folder")
    args.output = Path(args.output)
    _prepare(args.output)
    start = time.perf_counter()
    words = text.load()
    with terminal.progress("training", args.steps) as advance:
        outcome = training.train(words, args.steps, advance)
    report = _report(words, outcome)
    report["seconds"] = time.perf_counter() - start
    title = f"Held-out perplexity, {len(words.vocabulary)} words, loss by online-softmax"
    level = report["unigram perplexity"]
    picture = curve.learning_curve(title, outcome.perplexities, level, f"word frequencies alone: {level:.0f}", MARKER)
    (args.output / CURVE).write_text(picture, encoding="utf-8")
    (args.output / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if args.json:
        print(json.dumps(report))
    else:
        _show(report, args.output)
    difference = max(report["loss difference"], report["linear loss difference"])
    if not difference < LARGEST_DIFFERENCE:
        terminal.note(
            f"online-softmax demo: losses differ from torch's by {difference:.1e} "
            f"relatively; wanted less than {LARGEST_DIFFERENCE:.0e}"
        )
        return 1
    return 0


def _prepare(output: Path) -> None:
    """Make the folder; refuse to write over files that the demo has not written."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        for path in output / CURVE, output / REPORT:
            if path.exists() and MARKER not in path.read_text(encoding="utf-8", errors="replace"):
                raise terminal.CommandError(f"{path} is not the demo's own file; choose another --output")
    except OSError as error:
        raise terminal.CommandError(f"cannot write to --output {output}: {error.strerror}") from error


def _report(words: text.Text, outcome: training.Outcome) -> dict[str, Any]:
    vocabulary = len(words.vocabulary)
    size = {"rows": training.BATCH, "columns": vocabulary}
    libraries = {
        library: {
            "loss step seconds": seconds,
            "loss step peak bytes": peak_extra(f"{loss_step.__name__}:prepare", library=library, **size),
        }
        for library, seconds in outcome.seconds.items()
    }
    heads = {
        library: peak_extra(f"{loss_step.__name__}:prepare_head", library=library, features=training.HIDDEN, **size)
        for library in loss_step.HEADS
    }
    return {
        "about": MARKER,
        "vocabulary": vocabulary,
        "steps": outcome.losses[-1][0],
        "unigram perplexity": text.unigram_perplexity(words),
        "perplexity": outcome.perplexities[-1][1],
        "loss difference": outcome.loss_difference,
        "gradient difference": outcome.gradient_difference,
        "linear loss difference": outcome.head_difference,
        "logits bytes": training.BATCH * vocabulary * 4,
        "libraries": libraries,
        "last layer peak bytes": heads,
        "perplexities": outcome.perplexities,
        "losses": outcome.losses,
    }


def _show(report: dict[str, Any], output: Path) -> None:
    logits = report["logits bytes"]
    rows = [
        (
            library,
            f"{1e3 * figures['loss step seconds']:.1f} ms",
            f"{figures['loss step peak bytes'] / 1e6:.0f} MB",
            f"{figures['loss step peak bytes'] / logits:.1f}",
        )
        for library, figures in report["libraries"].items()
    ]
    title = f"Loss and gradient of {training.BATCH} x {report['vocabulary']} logits ({logits / 1e6:.0f} MB)"
    terminal.table(title, ("library", "time", "peak extra memory", "times the logits"), rows)
    heads = report["last layer peak bytes"]
    size = f"{training.BATCH} x {training.HIDDEN} features, {report['vocabulary']} words"
    title = f"Last layer, loss and all gradients: {size}"
    calls = {"online-softmax": "linear_cross_entropy", "torch": "linear, cross_entropy"}
    peaks = [
        (library, calls[library], f"{peak / 1e6:.0f} MB", f"{peak / logits:.1f}") for library, peak in heads.items()
    ]
    terminal.table(title, ("library", "call", "peak extra memory", "times the logits"), peaks)
    terminal.facts(
        f"After {report['steps']} steps, {report['seconds']:.0f} s",
        {
            "held-out perplexity": f"{report['perplexity']:.1f}",
            "word frequencies alone": f"{report['unigram perplexity']:.1f}",
            "largest difference of a loss from torch's": f"{report['loss difference']:.1e}",
            "largest difference of a linear loss": f"{report['linear loss difference']:.1e}",
            "largest difference of a gradient": f"{report['gradient difference']:.1e} of its largest element",
            "learning curve": output / CURVE,
        },
    )

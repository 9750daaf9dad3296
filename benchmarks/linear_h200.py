"""Linear + cross-entropy on one GPU: time in logits products of the same run, scratch memory, error against float64.

    PYTHONPATH=src python benchmarks/linear_h200.py [--seconds 120] [--shapes 2048x4096x32000 …] [--output linear.jsonl]

One JSON object a line, as soon as it is known: {"shape", "library", "products", "idle", "ms", "scratch", "peak",
"dx", "dw"} or {"shape", "library", "refused"}.  `products` is a median over interleaved rounds, over that of one
product of the same rounds; `scratch` counts bytes at the peak beyond inputs and returned gradients, `peak` beyond
inputs alone; `dx` and `dw` are relative errors (Frobenius) of slices.

A GPU at its power limit slows down and recovers within tens of milliseconds, so that what runs after a pause, or after
a call that only moves memory, looks a tenth faster.  `products` and `ms` therefore count calls that queue up behind
products enough to make it hot, in an order that turns from round to round; `idle` is the same ratio when the device
is idle before each call, Python's time to the first launch included.  A slow peer leaves the GPU cooler: beside one,
products go on for longer.

Everything is compiled ahead, in parallel processes.  All shapes come with ours and torch first, then with the peers
that compile, until the time is used up; the less of it is left for each shape, the fewer rounds are timed.
"""

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from linear_contestants import Call, Case, compile_all_ahead, contestants, make, slower, slowest

from online_softmax._dispatch import availability
from online_softmax.bench.record import commit

SHAPES = [(4096, 4096, 128256), (8192, 4096, 128256), (8192, 2304, 256000), (32768, 2048, 32000)]
LIGERS = [(2048, h, v) for h, v in [(4096, 32000), (4096, 128256), (3584, 152064), (5120, 152064), (8192, 152064),
                                    (2048, 102400), (7168, 129280)]]  # fmt: skip
TINY = [(96, 16, 200)]
SLICE = 48
HOT_MS, MOST_HOT_MS = 20.0, 60.0
COMPILING = 0.3  # of the time, at most
SETTING_UP = 2.5  # seconds a shape, about
PUBLISHED = {(4096, 4096, 128256): 17.3}  # ms, quack on an H200


def shape_of(text: str) -> tuple[int, int, int]:
    """Of "2048x4096x32000"."""
    tokens, hidden, classes = map(int, text.split("x"))
    return tokens, hidden, classes


def truth(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """In float64: the mean loss, the gradient of SLICE rows of x and that of SLICE rows of w."""
    x, w, t = case.x.detach().double(), case.w.detach().double(), case.t
    rows = len(x)
    lse, of_target = [], []
    for part in range(0, rows, 512):
        logits = x[part : part + 512] @ w.t()
        lse.append(logits.logsumexp(1))
        of_target.append(logits.gather(1, t[part : part + 512, None])[:, 0])
    total = torch.cat(lse)
    loss = (total - torch.cat(of_target)).mean()
    some = torch.linspace(0, rows - 1, SLICE, device=x.device).long()
    g = torch.exp(x[some] @ w.t() - total[some, None])
    g[torch.arange(SLICE, device=x.device), t[some]] -= 1
    classes = torch.cat([t[: SLICE // 2], torch.arange(SLICE // 2, device=x.device)])
    of_classes = torch.exp(x @ w[classes].t() - total[:, None]) - (t[:, None] == classes[None, :]).double()
    return loss, g @ w / rows, of_classes.t() @ x / rows


def errors(case: Case, answers: tuple[torch.Tensor, ...], right: Any) -> dict[str, float]:
    loss, dx, dw = right
    some = torch.linspace(0, len(case.x) - 1, SLICE, device=dx.device).long()
    classes = torch.cat([case.t[: SLICE // 2], torch.arange(SLICE // 2, device=dx.device)])

    def far(got: torch.Tensor, want: torch.Tensor) -> float:
        return float((got.double() - want).norm() / want.norm())

    found = {"loss": far(answers[0], loss)}
    if len(answers) > 2:
        found |= {"dx": far(answers[1][some], dx), "dw": far(answers[2][classes], dw)}
    return found


class Clock:
    """Milliseconds of calls, by events on a GPU."""

    def __init__(self, case: Case, device: str) -> None:
        self.case, self.cuda = case, device == "cuda"
        if self.cuda:
            self.logits = torch.empty(len(case.x), len(case.w), dtype=case.x.dtype, device=device)
            self._product()
            start = self._mark()
            self._product()
            end = self._mark()
            end.synchronize()
            self.of_product = start.elapsed_time(end)
            self.heat(HOT_MS)

    def heat(self, ms: float) -> None:
        """From now on, about so many milliseconds of products before each call that is to find the GPU hot."""
        if self.cuda:
            self.products = max(2, round(ms / self.of_product))

    def _mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _product(self) -> None:
        with torch.no_grad():
            torch.mm(self.case.x, self.case.w.t(), out=self.logits)

    def rounds(self, calls: dict[str, Call], hot: bool, rounds: int, seconds: float) -> dict[str, float]:
        """Medians of calls in turn; the first of a round is another one each time."""
        times: dict[str, list[float]] = {name: [] for name in calls}
        names, stop = list(calls), time.monotonic() + seconds
        for round_ in range(rounds):
            if round_ >= 3 and time.monotonic() > stop:
                break
            first = round_ % len(names)
            turned = [*names[first:], *names[:first]]
            for name, ms in zip(turned, self._one_round([calls[name] for name in turned], hot), strict=True):
                times[name].append(ms)
        return {name: statistics.median(found) for name, found in times.items()}

    def _one_round(self, calls: list[Call], hot: bool) -> list[float]:
        if not self.cuda:
            found = []
            for call in calls:
                start = time.perf_counter()
                call(self.case)
                found.append(1e3 * (time.perf_counter() - start))
            return found
        marks = []
        for call in calls:
            for _ in range(self.products if hot else 0):
                self._product()
            begin = self._mark()
            call(self.case)
            marks.append((begin, self._mark()))
            if not hot:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) for begin, end in marks]


def first_calls(name: str, call: Call, case: Case, right: Any, cuda: bool) -> dict[str, Any]:
    """Memory and errors; the first call sets up and compiles, the second is the one that counts."""
    call(case)
    if cuda:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if cuda else 0
    answers = call(case)
    found: dict[str, Any] = {}
    if cuda:
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        found = {"peak": peak, "scratch": peak - sum(a.nbytes for a in answers)}
    # Another loss, or no loss at all: nothing that `right` speaks of.
    if name in ("online-softmax, all options", "product"):
        return found
    return found | errors(case, answers, right)


def measure(
    shape: tuple[int, int, int],
    makers: dict[str, Callable[[], Call]],
    device: str,
    end: float,
    seconds: float,
    skip: dict[str, str],
    emit: Any,
) -> None:
    """One shape: everyone set up in turn, then timed in interleaved rounds, in about so many seconds."""
    case, cuda = make(shape, device), device == "cuda"
    right = truth(case)
    calls: dict[str, Call] = {}
    facts: dict[str, dict[str, Any]] = {}
    for name, prepare in makers.items():
        late = time.monotonic() > end
        if name in skip or late:
            emit({"shape": shape, "library": name, "refused": skip.get(name, "no time left")})
            continue
        start = time.monotonic()
        try:
            call = prepare()
            facts[name] = first_calls(name, call, case, right, cuda)
            calls[name] = call
        except Exception as problem:  # other libraries fail in every way there is; the row tells how
            text = f"{type(problem).__name__}: {problem}".splitlines()[0][:200]
            emit({"shape": shape, "library": name, "refused": text})
            if isinstance(problem, ImportError | AttributeError | TypeError):
                skip[name] = text
        took = time.monotonic() - start
        if took > 15:
            skip[name] = f"took {took:.0f} s to set up for one shape"
        gc.collect()
        if cuda:
            torch.cuda.empty_cache()
    clock = Clock(case, device)
    cold = clock.rounds(calls, False, 5, 0.1 * seconds)
    clock.heat(min(max(HOT_MS, *cold.values()), MOST_HOT_MS))
    hot = clock.rounds(calls, True, 9, 0.5 * seconds)
    for name, ms in hot.items():
        products, idle = round(ms / hot["product"], 4), round(cold[name] / cold["product"], 4)
        emit({"shape": shape, "library": name, "products": products, "idle": idle, "ms": round(ms, 3), **facts[name]})
    if shape in PUBLISHED:
        ms = PUBLISHED[shape]
        emit({"shape": shape, "library": "quack, published", "products": round(ms / hot["product"], 4), "ms": ms})


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="no new shape is begun after that long")
    parser.add_argument("--output", default=None)
    parser.add_argument("--shapes", nargs="+", default=SHAPES + LIGERS, type=shape_of, help="TOKENSxHIDDENxCLASSES …")
    parser.add_argument("--tiny", action="store_true", help="one small shape on the CPU, to see that this runs")
    args = parser.parse_args(arguments)
    device = "cpu" if args.tiny else "cuda"
    start = time.monotonic()
    output = args.output or (os.path.join(os.environ["OUT"], "linear.jsonl") if "OUT" in os.environ else None)
    file = open(output, "w", encoding="utf-8") if output else None  # noqa: SIM115 (open until the end)

    def emit(record: dict[str, Any]) -> None:
        for stream in filter(None, (sys.stdout, file)):
            print(json.dumps(record), file=stream, flush=True)

    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    facts = {"device": name, "torch": torch.__version__, "implementations": availability(), "commit": commit()}
    emit({"record": "machine", **facts})
    skip: dict[str, str] = {}
    shapes, end = TINY if args.tiny else args.shapes, start + args.seconds
    published = [shape for shape in shapes if shape in PUBLISHED]
    if device == "cuda":
        emit({"record": "compiled", "seconds": round(compile_all_ahead(shapes, COMPILING * args.seconds), 1)})
    turns = [(shape, contestants()) for shape in shapes]
    if not args.tiny:
        turns += [*((shape, slower()) for shape in shapes), *((shape, slowest()) for shape in published)]
    for turn, (shape, makers) in enumerate(turns):
        left = end - time.monotonic()
        if left < 0:
            emit({"shape": shape, "refused": "no time left"})
            continue
        try:
            of_others = max(len(turns) - len(published), turn + 1) - turn  # quack has what is left at the end
            seconds = min(5.0, max(1.0, left / of_others - SETTING_UP))
            measure(shape, makers, device, end, seconds, skip, emit)
        except Exception as problem:
            emit({"shape": shape, "refused": f"{type(problem).__name__}: {problem}"[:500]})
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    emit({"record": "end", "seconds": round(time.monotonic() - start, 1)})
    if file:
        file.close()


if __name__ == "__main__":
    main()

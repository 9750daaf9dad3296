"""merge_attention on one GPU beside torch and torch.compile: checked against float64 first, then timed.

    python benchmarks/attention_h200.py [--seconds 40] [--output benchmarks/results/merge-attention-h200.jsonl]

One JSON object a line, as the files of the benchmark are: `rows` is the number of partial results and `columns` the
elements of one; `traffic` is what must be moved, in sizes of all of them: each read once, with its lse, and one written
(backward: each read and its gradient written, the merged one and its gradient read).  Times are those in a CUDA graph
over inputs of several times the last cache.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import online_softmax as osm
from online_softmax.bench.case import LIMITS
from online_softmax.bench.compiling import NOT_COMPILED, compiled
from online_softmax.bench.record import machine
from online_softmax.bench.tables import OURS

ROWS, HEADS, SIZE = 4096, 32, 128
CACHE = 60_000_000  # bytes
PARTIALS = (2, 8, 4, 32)
ROUNDS = 11
COPIES = ("copy", "copy by a kernel")
Call = Callable[..., Any]
Record = dict[str, Any]
Inputs = tuple[torch.Tensor, torch.Tensor]


def in_torch(outs: torch.Tensor, lses: torch.Tensor) -> Inputs:
    """The same merge, written in torch."""
    lse = torch.logsumexp(lses, 0)
    weights = torch.exp(lses - lse)
    return (weights[..., None] * outs.to(lses.dtype)).sum(0).to(outs.dtype), lse


def of_lists(outs: list[torch.Tensor], lses: list[torch.Tensor]) -> Any:
    """Partial results that lie apart."""
    return osm.merge_attention(outs, lses)


def inputs(count: int, dtype: torch.dtype, device: str) -> list[Inputs]:
    """Sets of partial results that together are five times as large as the last cache."""
    shape = count, ROWS, HEADS
    least = 5 * CACHE if device == "cuda" else 1
    sets = max(2, -(-least // (count * ROWS * HEADS * SIZE * dtype.itemsize)))
    return [
        (torch.randn(*shape, SIZE, device=device, dtype=dtype), torch.randn(shape, device=device)) for _ in range(sets)
    ]


def graph_of(calls: list[Call]) -> torch.cuda.CUDAGraph:
    """All the calls, one after the other, on the current stream, which must not be the default one."""
    for call in calls:
        call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        for call in calls:
            call()
    return graph


def medians(calls: dict[str, list[Call]]) -> dict[str, float]:
    """Seconds of one call for each name, in turn."""
    graphs = {name: graph_of(each) for name, each in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            stop.record()
            stop.synchronize()
            times[name].append(start.elapsed_time(stop) / 1000 / len(calls[name]))
    return {name: statistics.median(each) for name, each in times.items()}


def wrong_by(got: Any, want: Any) -> float:
    """The largest error, beside the largest number of each right answer; inf for a NaN."""
    gaps = [
        ((a.double() - b).abs().max() / b.abs().max()).nan_to_num(torch.inf).item()
        for a, b in zip(got, want, strict=True)
    ]
    return max(gaps)


def record_of(operation: str, count: int, dtype: torch.dtype, moved: int) -> Record:
    """A record with nothing measured yet; `moved` partial results are read or written, with as many lse."""
    each = SIZE * dtype.itemsize
    return {
        "record": "workload",
        "operation": operation,
        "rows": count,
        "columns": ROWS * HEADS * SIZE,
        "dtype": str(dtype).removeprefix("torch."),
        "variant": "",
        "way": "cold",
        "inner": 0,
        "traffic": moved * (each + 4) / (count * each),
        **{name: {} for name in ("seconds", "yardsticks", "memory", "error", "refused")},
        "wrong": [],
    }


def measured(record: Record, ways: dict[str, list[Call]], right: Any, answer: Callable[[Any], Any]) -> Record:
    """The record with everyone's error and the times of those who are right; the copies are ways too."""
    timed = {name: ways.pop(name) for name in COPIES}
    for name, calls in ways.items():
        try:
            error = wrong_by(answer(calls[0]()), right)
        except Exception as problem:  # a compiler fails in every way there is; the record tells how
            record["refused"][name] = f"{type(problem).__name__}: {problem}".splitlines()[0][:200]
            continue
        record["error"][name] = error
        if error <= LIMITS[record["dtype"]]:
            timed[name] = calls
        else:
            record["wrong"].append(name)
    found = medians(timed)
    record["yardsticks"]["copy"] = min(found.pop(name) for name in COPIES)
    record["seconds"] = found
    return record


def copies(given: list[torch.Tensor], target: torch.Tensor) -> dict[str, list[Call]]:
    """As a copy, which in a graph is a node that may be slow, and by a kernel that reads and writes as much."""
    kernel = [lambda x=x: torch.neg(x, out=target) for x in given]
    return dict(zip(COPIES, ([lambda x=x: target.copy_(x) for x in given], kernel), strict=True))


def forward(count: int, dtype: torch.dtype, device: str, compiling: bool) -> Record:
    """Merging `count` partial results that lie one behind the other, and apart."""
    data = inputs(count, dtype, device)
    listed = [([x.clone() for x in outs], [x.clone() for x in lses]) for outs, lses in data]
    target = torch.empty_like(data[0][0])
    ways: dict[str, list[Call]] = {
        **copies([d[0] for d in data], target),
        OURS: [lambda d=d: osm.merge_attention(*d) for d in data],
        f"{OURS}, lists": [lambda d=d: of_lists(*d) for d in listed],
        "torch": [lambda d=d: in_torch(*d) for d in data],
    }
    record = record_of("merge_attention", count, dtype, count + 1)
    if compiling:
        function = compiled(in_torch)
        ways["torch.compile"] = [lambda d=d: function(*d) for d in data]
    else:
        record["refused"]["torch.compile"] = NOT_COMPILED
    some = slice(0, 64)
    right = in_torch(*(part[:, some].double() for part in data[0]))
    return measured(record, ways, right, lambda merged: [part[some] for part in merged])


def backward(count: int, dtype: torch.dtype, device: str) -> Record:
    """The gradients of all partial results and of their lse."""
    data = [(outs.requires_grad_(), lses.requires_grad_()) for outs, lses in inputs(count, dtype, device)[:2]]
    up = torch.randn_like(data[0][0][0]), torch.randn_like(data[0][1][0])
    target = torch.empty_like(data[0][0])

    def gradients(way: Call) -> list[Call]:
        merged = [list(way(*each)) for each in data]
        return [
            lambda m=m, d=d: torch.autograd.grad(m, d, up, retain_graph=True) for m, d in zip(merged, data, strict=True)
        ]

    ways = {
        **copies([d[0].detach() for d in data], target),
        OURS: gradients(osm.merge_attention),
        "torch": gradients(in_torch),
    }
    some = slice(0, 64)
    leaves = [part.detach()[:, some].double().requires_grad_() for part in data[0]]
    right = torch.autograd.grad(in_torch(*leaves), leaves, [part[some].double() for part in up])
    record = record_of("merge_attention backward", count, dtype, 2 * count + 2)
    return measured(record, ways, right, lambda found: [part[:, some] for part in found])


def main(arguments: list[str] | None = None) -> None:
    """The machine, then a line for each number of partial results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=40, help="after two thirds of them nothing more is compiled")
    parser.add_argument("--output", type=Path, default=None)
    given = parser.parse_args(arguments)
    started = time.perf_counter()
    lines: list[str] = []

    def say(record: Record) -> None:
        lines.append(json.dumps(record))
        print(lines[-1], flush=True)
        if given.output is not None:
            given.output.write_text("\n".join(lines) + "\n", encoding="utf-8")

    say(machine("cuda", False))
    for dtype in (torch.bfloat16, torch.float32):
        for count in PARTIALS:
            spent = time.perf_counter() - started
            if spent > given.seconds:
                return
            # Autograd runs backward on the stream of forward, and graphs are captured on another than the default one.
            with torch.cuda.stream(torch.cuda.Stream()):
                say(forward(count, dtype, "cuda", spent < given.seconds * 2 / 3))
                say(backward(count, dtype, "cuda"))
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

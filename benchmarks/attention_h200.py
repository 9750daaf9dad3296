"""merge_attention on one GPU against torch and torch.compile: checked against float64 first, then timed.

    python benchmarks/attention_h200.py > results.jsonl

One JSON object a line.  `copy` is the fraction of the rate at which a large array is copied in the same run.  Times of
kernels are those in a CUDA graph over inputs of more than the last cache together; `as_called` is what a call takes in
a row of calls from Python.  About two minutes on one H200, compilation included.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from typing import Any

import torch

import online_softmax as osm
from online_softmax.bench.record import commit

ROWS, HEADS, SIZE = 4096, 32, 128
CACHE = 60_000_000  # bytes
Call = Callable[..., Any]


def say(**facts: object) -> None:
    """One result, on a line of its own."""
    print(json.dumps(facts), flush=True)


def graphed(calls: list[Call], repeats: int = 9) -> float:
    """Milliseconds of one of the calls in a CUDA graph of them all: nothing of Python's time."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / len(calls))
    return sorted(times)[len(times) // 2]


def as_called(calls: list[Call], rounds: int = 10) -> float:
    """Milliseconds of one of the calls, one after the other."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(rounds):
        for call in calls:
            call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / (rounds * len(calls)) * 1e3


def in_torch(outs: torch.Tensor, lses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same merge, written in torch."""
    lse = torch.logsumexp(lses, 0)
    weights = torch.exp(lses - lse)
    return (weights[..., None] * outs.float()).sum(0).to(outs.dtype), lse


def copy_rate() -> float:
    """Bytes a millisecond, read and write counted."""
    a = torch.zeros(2**30, dtype=torch.uint8, device="cuda")
    b = torch.zeros_like(a)
    return 2 * a.numel() / graphed([lambda: b.copy_(a)] * 8)


def check_merge() -> None:
    """Every dtype, alignment and number of partial results against the reference, with gradients."""
    for dtype, count, size, listed in (
        (torch.bfloat16, 2, 128, True),
        (torch.bfloat16, 8, 128, False),
        (torch.float16, 3, 100, True),
        (torch.float16, 5, 7, False),
        (torch.float32, 33, 64, True),
        (torch.float32, 40, 96, False),
        (torch.float64, 4, 48, True),
    ):
        outs = torch.randn(count, 37, 5, size, device="cuda").to(dtype)
        lses = torch.randn(
            count, 37, 5, device="cuda", dtype=torch.float64 if dtype == torch.float64 else torch.float32
        )
        lses[0, :3], lses[:, 3], lses[0, 4], lses[1, 5] = -torch.inf, -torch.inf, torch.nan, torch.inf
        outs[0, :3] = torch.nan
        leaves = outs.requires_grad_(), lses.requires_grad_()
        given = [list(x.unbind(0)) if listed else x for x in leaves]
        up, up_lse = torch.randn_like(outs[0]), torch.randn_like(lses[0])
        found = {}
        for impl in ("cuda", "reference"):
            out, lse = osm.merge_attention(*given, impl=impl)
            grads = torch.autograd.grad([out, lse], leaves, [up, up_lse], retain_graph=True)
            found[impl] = [out.detach(), lse.detach(), *grads]
        worst = 0.0
        # The gradient of lse is made from out as it was rounded, and where two ways to add round it to different
        # neighbours they differ by as much: its unit is that of outs.  (tests/gpu compares it from the same out.)
        units = [torch.finfo(x.dtype).eps for x in found["cuda"][:3]] + [torch.finfo(dtype).eps]
        for got, want, unit in zip(found["cuda"], found["reference"], units, strict=True):
            same = torch.equal(torch.isnan(got), torch.isnan(want)) and torch.equal(got.isinf(), want.isinf())
            finite = want.isfinite()
            gap = (got[finite].double() - want[finite].double()).abs().max() / want[finite].abs().max().double()
            worst = max(worst, float("inf") if not same else gap.item() / unit)
        say(
            check="merge_attention",
            dtype=str(dtype),
            partials=count,
            size=size,
            listed=listed,
            worst_eps=worst,
            right=worst <= 8,
        )


def check_attention() -> None:
    """The fused ways and their gradients against float64."""
    for dtype, heads, key_heads, queries, keys, causal, grad_lse in (
        (torch.bfloat16, 8, 2, 256, 256, True, True),
        (torch.bfloat16, 8, 8, 100, 300, True, False),
        (torch.float16, 4, 1, 300, 100, True, True),
        (torch.float32, 4, 2, 130, 200, False, True),
        (torch.float32, 4, 4, 130, 200, True, False),
        (torch.float64, 2, 1, 50, 60, True, True),
    ):
        shapes = (2, heads, queries, 64), (2, key_heads, keys, 64), (2, key_heads, keys, 64)
        q, k, v = (torch.randn(shape, device="cuda").to(dtype).requires_grad_() for shape in shapes)
        wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
        got = osm.attention(q, k, v, causal=causal, return_lse=True)
        want = osm.attention(*wide, causal=causal, return_lse=True, impl="reference")
        up, up_lse = torch.randn_like(got[0]), torch.randn_like(got[1])
        up_lse = torch.where(got[1].isinf(), 0.0, up_lse)
        pick = slice(None) if grad_lse else slice(1)
        grads = torch.autograd.grad(got[pick], (q, k, v), [up, up_lse][pick])
        exact = torch.autograd.grad(want[pick], wide, [up.double(), up_lse.double()][pick])
        pairs = [(got[0], want[0]), *zip(grads, exact, strict=True)]
        gaps = [((a.double() - b).abs().max() / b.abs().max()).item() for a, b in pairs]
        blind = got[1].isinf() == want[1].isinf()
        gap_lse = (got[1] - want[1]).nan_to_num(0, 0, 0).abs().max().item()
        limit = 16 * torch.finfo(dtype).eps if dtype != torch.float32 else 2e-3  # TF32 products
        right = max(gaps) <= limit and bool(blind.all()) and gap_lse < 2e-3
        say(
            check="attention",
            dtype=str(dtype),
            heads=heads,
            key_heads=key_heads,
            queries=queries,
            keys=keys,
            causal=causal,
            grad_lse=grad_lse,
            gaps=gaps,
            lse=gap_lse,
            right=right,
        )


def peers(outs: torch.Tensor, lses: torch.Tensor) -> dict[str, Call]:
    """Other libraries' merges, where they are installed: two partial results, or any number."""
    found: dict[str, Call] = {}
    try:
        import flashinfer

        v, s = outs.transpose(0, 1).contiguous(), (lses * 1.4426950408889634).transpose(0, 1).contiguous()
        found["flashinfer"] = lambda: flashinfer.merge_states(v, s)
    except ImportError:
        pass
    try:
        from flash_attn.cute.interface import flash_attn_combine

        wide = outs.float()[:, None]
        found["flash-attention"] = lambda: flash_attn_combine(wide, lses[:, None], out_dtype=outs.dtype)
    except ImportError:
        pass
    return found


def inputs(count: int, dtype: torch.dtype) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Sets of partial results that together are five times as large as the last cache."""
    size = count * ROWS * HEADS * SIZE * dtype.itemsize
    return [
        (
            torch.randn(count, ROWS, HEADS, SIZE, device="cuda", dtype=dtype),
            torch.randn(count, ROWS, HEADS, device="cuda"),
        )
        for _ in range(max(2, -(-(5 * CACHE) // size)))
    ]


def time_merge(rate: float, compiled: Call, dtype: torch.dtype, count: int) -> None:
    """Forward: one read of every partial result and one write."""
    data = inputs(count, dtype)
    listed = [([x.clone() for x in outs], [x.clone() for x in lses]) for outs, lses in data]
    calls: dict[str, list[Call]] = {
        "online_softmax, stacked": [lambda d=d: osm.merge_attention(*d) for d in data],
        "online_softmax, listed": [lambda d=d: osm.merge_attention(*d) for d in listed],
        "torch": [lambda d=d: in_torch(*d) for d in data[:2]],
        "torch.compile": [lambda d=d: compiled(*d) for d in data],
    }
    for outs, lses in data[:1]:
        for name, call in peers(outs, lses).items():
            calls[name] = [call]
    least = (count + 1) * ROWS * HEADS * (SIZE * dtype.itemsize + 4)
    for name, each in calls.items():
        try:
            alone, called = graphed(each), as_called(each)
        except Exception as error:
            say(time="merge", dtype=str(dtype), partials=count, by=name, failed=str(error)[:200])
            continue
        more = {"as_called_ms": called, "as_called_copy": least / called / rate}
        say(time="merge", dtype=str(dtype), partials=count, by=name, ms=alone, copy=least / alone / rate, **more)


def time_backward(rate: float, dtype: torch.dtype, count: int) -> None:
    """Backward: every partial result read, its gradient written, and out and its gradient read."""
    data = [tuple(x.requires_grad_() for x in each) for each in inputs(count, dtype)[:2]]
    ways: dict[str, Call] = {"online_softmax": lambda *d: tuple(osm.merge_attention(*d)), "torch": in_torch}
    least = (2 * count + 2) * ROWS * HEADS * (SIZE * dtype.itemsize + 4)
    for name, way in ways.items():
        merged = [way(*each) for each in data]
        up = torch.randn_like(merged[0][0]), torch.randn_like(merged[0][1])
        calls: list[Call] = [
            lambda m=m, d=d, up=up: torch.autograd.grad(m, d, up, retain_graph=True)
            for m, d in zip(merged, data, strict=True)
        ]
        ms = as_called(calls)
        say(time="merge backward", dtype=str(dtype), partials=count, by=name, as_called_ms=ms, copy=least / ms / rate)


def main() -> None:
    """All checks, then all times."""
    say(
        machine=torch.cuda.get_device_name(),
        torch=torch.__version__,
        commit=commit(),
        python=platform.python_version(),
        online_softmax=osm.__version__,
    )
    check_merge()
    check_attention()
    rate = copy_rate()
    say(copy_bytes_per_second=rate * 1e3)
    compiled = torch.compile(in_torch, dynamic=False)
    for dtype in (torch.bfloat16, torch.float32):
        for count in (2, 4, 8, 32):
            time_merge(rate, compiled, dtype, count)
            time_backward(rate, dtype, count)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

"""merge_attention on one GPU against torch and torch.compile: checked against float64 first, then timed.

    python benchmarks/attention_h200.py > results.jsonl

One JSON object a line.  `copy` is the fraction of the rate at which the same number of bytes is copied in the same run.
About two minutes on one H200, compilation included.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from typing import Any

import torch

import online_softmax as osm

ROWS, HEADS, SIZE = 4096, 32, 128
Call = Callable[..., Any]


def say(**facts: object) -> None:
    """One result, on a line of its own."""
    print(json.dumps(facts), flush=True)


def milliseconds(calls: dict[str, Call], repeats: int = 20) -> dict[str, float]:
    """The median of each call, interleaved."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    for _ in range(repeats):
        for name, call in calls.items():
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            stop.record()
            stop.synchronize()
            times[name].append(start.elapsed_time(stop))
    return {name: sorted(each)[len(each) // 2] for name, each in times.items()}


def in_torch(outs: torch.Tensor, lses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same merge, written in torch."""
    lse = torch.logsumexp(lses, 0)
    weights = torch.exp(lses - lse)
    return (weights[..., None] * outs.float()).sum(0).to(outs.dtype), lse


def copy_rate() -> float:
    """Bytes a millisecond, read and write counted."""
    a = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() / milliseconds({"copy": lambda: b.copy_(a)})["copy"]


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


def time_merge(rate: float, compiled: Call, dtype: torch.dtype, count: int) -> None:
    """Forward: one read of every partial result and one write."""
    outs = torch.randn(count, ROWS, HEADS, SIZE, device="cuda").to(dtype)
    lses = torch.randn(count, ROWS, HEADS, device="cuda")
    listed = [x.clone() for x in outs], [x.clone() for x in lses]
    calls: dict[str, Call] = {
        "online_softmax, stacked": lambda: osm.merge_attention(outs, lses),
        "online_softmax, listed": lambda: osm.merge_attention(*listed),
        "torch": lambda: in_torch(outs, lses),
        "torch.compile": lambda: compiled(outs, lses),
    }
    for name, call in peers(outs, lses).items():
        try:
            call()
            calls[name] = call
        except Exception as error:
            say(peer=name, partials=count, dtype=str(dtype), failed=str(error)[:200])
    least = (count + 1) * ROWS * HEADS * (SIZE * dtype.itemsize + 4)
    for name, ms in milliseconds(calls).items():
        say(time="merge", dtype=str(dtype), partials=count, by=name, ms=ms, copy=least / ms / rate)


def time_backward(rate: float, dtype: torch.dtype, count: int) -> None:
    """Backward: every partial result read, its gradient written, and out and its gradient read."""
    outs = torch.randn(count, ROWS, HEADS, SIZE, device="cuda").to(dtype).requires_grad_()
    lses = torch.randn(count, ROWS, HEADS, device="cuda").requires_grad_()
    up = torch.randn_like(outs[0]), torch.randn_like(lses[0])
    graphs = {"online_softmax": tuple(osm.merge_attention(outs, lses)), "torch": in_torch(outs, lses)}

    def run(graph: tuple[torch.Tensor, ...]) -> Call:
        return lambda: torch.autograd.grad(graph, (outs, lses), up, retain_graph=True)

    least = (2 * count + 2) * ROWS * HEADS * (SIZE * dtype.itemsize + 4)
    for name, ms in milliseconds({name: run(graph) for name, graph in graphs.items()}, 10).items():
        say(time="merge backward", dtype=str(dtype), partials=count, by=name, ms=ms, copy=least / ms / rate)


def main() -> None:
    """All checks, then all times."""
    say(
        machine=torch.cuda.get_device_name(),
        torch=torch.__version__,
        python=platform.python_version(),
        online_softmax=osm.__version__,
    )
    check_merge()
    check_attention()
    rate = copy_rate()
    say(copy_bytes_per_second=rate * 1e3)
    compiled = torch.compile(in_torch)
    for dtype in (torch.bfloat16, torch.float32):
        for count in (2, 4, 8, 32):
            time_merge(rate, compiled, dtype, count)
            time_backward(rate, dtype, count)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

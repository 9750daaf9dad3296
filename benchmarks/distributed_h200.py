"""Every distributed function on several GPUs over NCCL: checked against one device, then timed.

    torchrun --nproc-per-node 2 benchmarks/distributed_h200.py --out results.jsonl

One JSON object a line, from rank 0, as soon as it is known.  `rate` is the fraction of the rate at which a device
copies: 1 would be one read and one write of its local logits.  A section that goes wrong is a line too, and the next
one follows; one that hangs ends the program after `--seconds`.  About a minute on two H200s, compilation included.

`--device cpu` runs the same over Gloo, in the sizes that `--rows`, `--classes` and `--tokens` give.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import loss_parallel

import online_softmax as osm
from online_softmax import distributed
from online_softmax.bench.record import commit
from online_softmax.distributed.group import gather

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
Call = Callable[[], Any]


def arguments() -> argparse.Namespace:
    """What is asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the lines to this file too")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--classes", type=int, default=128256, help="of all processes together")
    parser.add_argument("--tokens", type=int, default=32768, help="of each process, for ring attention")
    parser.add_argument("--seconds", type=float, default=100.0, help="end the program after so long, whatever it does")
    return parser.parse_args()


WANTED = arguments()
DEVICE = torch.device(WANTED.device, int(os.environ["LOCAL_RANK"]) if WANTED.device == "cuda" else None)


def say(**facts: object) -> None:
    """One result, on a line of its own."""
    if RANK:
        return
    line = json.dumps(facts)
    print(line, flush=True)
    if WANTED.out:
        with WANTED.out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def once(call: Call) -> float:
    """Milliseconds of one call on this process."""
    dist.barrier()
    if DEVICE.type == "cpu":
        began = time.perf_counter()
        call()
        return (time.perf_counter() - began) * 1e3
    torch.cuda.synchronize()
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop)


def milliseconds(calls: dict[str, Call], repeats: int = 10) -> dict[str, float]:
    """Of each call the median over repeats, taken in turn, of the slowest process's time."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(2):
            call()
    for _ in range(repeats):
        for name, call in calls.items():
            slowest = torch.tensor(once(call), device=DEVICE)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            times[name].append(slowest.item())
    return {name: sorted(each)[len(each) // 2] for name, each in times.items()}


def far(got: torch.Tensor, want: torch.Tensor, whole: torch.Tensor | None = None) -> float:
    """|got - want| in eps of the whole tensor's largest value, on the worst rank."""
    whole = want if whole is None else whole
    same = torch.equal(got.isnan(), want.isnan())
    gap = (
        (got.double() - want.double()).abs().nan_to_num(0).max()
        if got.numel()
        else torch.zeros((), device=DEVICE).double()
    )
    size = whole.double().abs().nan_to_num(0).max() * torch.finfo(want.dtype).eps
    worst = (gap / size if same else gap + torch.inf).float()
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return worst.item()


def cuts(even: bool) -> list[int]:
    """Where each shard begins, and the end."""
    return (
        [r * 2000 for r in range(SIZE + 1)] if even else [0, *(r * 2000 + 137 for r in range(1, SIZE)), SIZE * 2000 + 1]
    )


def check_losses() -> None:
    """Losses over sharded classes."""
    for even in (True, False):
        borders = cuts(even)
        mine = slice(borders[RANK], borders[RANK + 1])
        weight = torch.rand(borders[-1], device=DEVICE) + 0.5
        everything = {"weight": weight, "label_smoothing": 0.2, "z_loss": 1e-3, "softcap": 20.0, "reduction": "none"}
        # Few kernels: compiling them takes most of the time, and the tests have the rest.
        cases: list[tuple[torch.dtype, dict[str, Any]]] = [(torch.bfloat16, {})]
        if not even:
            cases += [(torch.bfloat16, {"label_smoothing": 0.1}), (torch.float32, everything)]
        for dtype, options in cases:
            logits = (torch.randn(256, borders[-1], device=DEVICE) * 3).to(dtype)
            target = torch.randint(borders[-1], (256,), device=DEVICE)
            target[5] = -100
            whole, local = logits.clone().requires_grad_(), logits[:, mine].clone().requires_grad_()
            want = osm.cross_entropy(whole, target, **options)
            got = distributed.cross_entropy(local, target, vocab_start=mine.start, vocab_size=borders[-1], **options)
            up = torch.rand_like(want) + 0.5
            want.backward(up)
            got.backward(up)
            assert local.grad is not None
            assert whole.grad is not None
            loss, grad = far(got.detach(), want.detach()), far(local.grad, whole.grad[:, mine], whole.grad)
            say(
                check="cross_entropy",
                even=even,
                dtype=str(dtype),
                options=sorted(options),
                loss=loss,
                gradient=grad,
                right=loss <= 2 and grad <= 4,
            )


def check_softmax() -> None:
    """Softmax, its logarithm and the normaliser over a sharded axis."""
    borders = cuts(False)
    mine = slice(borders[RANK], borders[RANK + 1])
    x = torch.randn(64, borders[-1], device=DEVICE) * 3
    for name in ("softmax", "log_softmax", "logsumexp"):
        whole, local = x.clone().requires_grad_(), x[:, mine].clone().requires_grad_()
        want, got = getattr(osm, name)(whole, -1), getattr(distributed, name)(local, -1)
        part = want if name == "logsumexp" else want[:, mine]
        up = torch.randn_like(want)
        want.backward(up)
        got.backward(up if name == "logsumexp" else up[:, mine])
        result = far(got.detach(), part.detach(), want.detach())
        grad = far(local.grad, whole.grad[:, mine], whole.grad)
        say(check=name, result=result, gradient=grad, right=result <= 2 and grad <= 4)
    merged = distributed.all_merge(osm.State.of(x[:, mine])).logsumexp()
    gap = far(merged, osm.logsumexp(x, -1))
    say(check="all_merge", result=gap, right=gap <= 2)


def check_linear() -> None:
    """The head and the loss together."""
    borders = cuts(False)
    mine = slice(borders[RANK], borders[RANK + 1])
    h, w = (torch.randn(n, 512, device=DEVICE, dtype=torch.bfloat16) * 0.1 for n in (1000, borders[-1]))
    target = torch.randint(borders[-1], (1000,), device=DEVICE)
    whole_h, whole_w = h.clone().requires_grad_(), w.clone().requires_grad_()
    local_h, local_w = h.clone().requires_grad_(), w[mine].clone().requires_grad_()
    want = osm.cross_entropy((whole_h @ whole_w.T), target)
    got = distributed.linear_cross_entropy(
        local_h, local_w, target, vocab_start=mine.start, vocab_size=borders[-1], chunk_rows=300
    )
    want.backward()
    got.backward()
    gaps = (
        far(got.detach(), want.detach()),
        far(local_h.grad, whole_h.grad),
        far(local_w.grad, whole_w.grad[mine], whole_w.grad),
    )
    say(check="linear_cross_entropy", gaps=gaps, right=max(gaps) <= 8)


def check_ring() -> None:
    """Ring attention, packed sequences included."""
    for causal in (False, True):
        for lengths in ([1024], [37, 600, 1, 333]):
            q, k, v = (torch.randn(1, n, sum(lengths), 64, device=DEVICE).to(torch.bfloat16) for n in (8, 2, 2))
            for x in (q, k, v):
                dist.broadcast(x, 0)
            whole = [x.clone().requires_grad_() for x in (q, k, v)]
            pieces = zip(*(x.split(lengths, -2) for x in whole), strict=True)
            want = torch.cat([osm.attention(*piece, causal=causal) for piece in pieces], -2)
            local = [distributed.shard_sequence(x, lengths=lengths).requires_grad_() for x in (q, k, v)]
            got = distributed.ring_attention(*local, causal=causal, lengths=lengths)
            up = torch.randn_like(want)
            dist.broadcast(up, 0)
            want.backward(up)
            got.backward(distributed.shard_sequence(up, lengths=lengths))
            gaps = [far(distributed.gather_sequence(got, lengths=lengths), want.detach())]
            gaps += [
                far(distributed.gather_sequence(a.grad, lengths=lengths), b.grad)
                for a, b in zip(local, whole, strict=True)
            ]
            say(check="ring_attention", causal=causal, lengths=lengths, gaps=gaps, right=max(gaps) <= 4)


def memory() -> int:
    """Bytes that tensors take on this device."""
    return torch.cuda.memory_allocated() if DEVICE.type == "cuda" else 0


def extra_copies(call: Call, size: int) -> float | None:
    """The most memory that a call takes beyond what is there before and after, in copies of `size` bytes."""
    if DEVICE.type == "cpu":
        return None
    before = memory()
    torch.cuda.reset_peak_memory_stats()
    call()
    return (torch.cuda.max_memory_allocated() - before) / size


def time_losses() -> None:
    """Cross-entropy forward and backward beside torch's loss_parallel."""
    local = torch.randn(WANTED.rows, WANTED.classes // SIZE, device=DEVICE).to(torch.bfloat16).requires_grad_()
    target = torch.randint(WANTED.classes, (WANTED.rows,), device=DEVICE)
    dist.broadcast(target, 0)
    size = local.numel() * local.element_size()
    mesh = init_device_mesh(DEVICE.type, (SIZE,))
    sharded = DTensor.from_local(local.detach(), mesh, [Shard(1)], run_check=False).requires_grad_()
    whole_target = DTensor.from_local(target, mesh, [Replicate()], run_check=False)

    def ours(**options: Any) -> None:
        local.grad = None
        distributed.cross_entropy(local, target, **options).backward()

    def theirs() -> None:
        sharded.grad = None
        with loss_parallel():
            torch.nn.functional.cross_entropy(sharded, whole_target).backward()

    calls: dict[str, Call] = {
        "online_softmax": ours,
        "online_softmax, label_smoothing": lambda: ours(label_smoothing=0.1),
        "loss_parallel": theirs,
    }
    extra = {}
    for name, call in calls.items():
        call()
        local.grad = sharded.grad = None
        extra[name] = extra_copies(call, size)
        local.grad = sharded.grad = None
    from_copy, to_copy = (torch.empty(size, dtype=torch.uint8, device=DEVICE) for _ in range(2))
    times = milliseconds({**calls, "copy": lambda: to_copy.copy_(from_copy)})
    # One read and one write of the local logits is what a copy of them takes.
    say(copy_bytes_per_second=2 * size / times["copy"] * 1e3, ms=times["copy"])
    for name in calls:
        say(
            time="cross_entropy forward + backward",
            rows=WANTED.rows,
            classes=WANTED.classes,
            by=name,
            ms=times[name],
            rate=times["copy"] / times[name],
            faster_than_loss_parallel=times["loss_parallel"] / times[name],
            extra_copies=extra[name],
        )
    part = torch.zeros(3, WANTED.rows, device=DEVICE)
    say(time="gather of three numbers a row", ms=milliseconds({"gather": lambda: gather(part, None)})["gather"])


def time_ring() -> None:
    """Ring attention beside one device with everything."""
    for causal in (True, False):
        shape = (1, 16, WANTED.tokens, 128)
        q, k, v = (torch.randn(shape, device=DEVICE).to(torch.bfloat16).requires_grad_() for _ in range(3))
        up = torch.randn_like(q)
        wide = [torch.cat([x.detach()] * SIZE, -2).requires_grad_() for x in (q, k, v)]
        wide_up = torch.cat([up] * SIZE, -2)

        def ring(q=q, k=k, v=v, up=up, causal=causal) -> None:
            torch.autograd.grad(distributed.ring_attention(q, k, v, causal=causal), (q, k, v), up)

        def alone(wide=wide, up=wide_up, causal=causal) -> None:
            torch.autograd.grad(osm.attention(*wide, causal=causal), wide, up)

        times = milliseconds({"ring": ring, "alone": alone}, 3)
        say(
            time="ring_attention forward + backward",
            tokens=WANTED.tokens * SIZE,
            causal=causal,
            ms=times["ring"],
            one_device_ms=times["alone"],
            over_share=times["ring"] / (times["alone"] / SIZE),
        )


def watch(seconds: float) -> None:
    """Ends this process after so many seconds: a process that failed alone leaves the others in a collective."""

    def end() -> None:
        say(failed="time", seconds=seconds)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def main() -> None:
    """All checks, then all times."""
    watch(WANTED.seconds)
    if DEVICE.type == "cuda":
        torch.cuda.set_device(DEVICE)
        dist.init_process_group("nccl", device_id=DEVICE, timeout=timedelta(seconds=WANTED.seconds))
    else:
        dist.init_process_group("gloo", timeout=timedelta(seconds=WANTED.seconds))
    say(
        machine=torch.cuda.get_device_name() if DEVICE.type == "cuda" else "cpu",
        ranks=SIZE,
        commit=commit(),
        online_softmax=osm.__version__,
        torch=torch.__version__,
        nccl=".".join(map(str, torch.cuda.nccl.version())) if DEVICE.type == "cuda" else None,
        python=platform.python_version(),
    )
    for part in (check_losses, check_softmax, check_linear, check_ring, time_losses, time_ring):
        began = time.perf_counter()
        torch.manual_seed(0)
        try:
            part()
        except Exception as error:  # the next section may still tell something
            print(f"rank {RANK}: {traceback.format_exc()}", file=sys.stderr, flush=True)
            say(failed=part.__name__, error=f"{type(error).__name__}: {error}"[:500])
        if DEVICE.type == "cuda":
            with contextlib.suppress(Exception):
                torch.cuda.empty_cache()
        say(section=part.__name__, seconds=time.perf_counter() - began)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

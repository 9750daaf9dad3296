"""Every distributed function on several GPUs over NCCL: checked against one device, then timed.

    torchrun --nproc-per-node 2 benchmarks/distributed_h200.py --out results.jsonl

One JSON object a line, from rank 0, as soon as it is known.  `rate` is the fraction of the rate at which a device
copies: 1 would be one read and one write of its local logits.  A section that goes wrong is a line too, and the next
one follows; one that hangs ends the program after `--seconds`.  About a minute on two H200s, compilation included.

`--device cpu` runs the same over Gloo, in the sizes that `--rows`, `--classes` and `--tokens` give.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from distributed_checks import check_linear, check_losses, check_ring, check_softmax
from ranks import DEVICE, RANK, SIZE, WANTED, Call, milliseconds, say, watch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import loss_parallel

import online_softmax as osm
from online_softmax import distributed
from online_softmax.bench.record import commit
from online_softmax.distributed.group import gather


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
    idle = milliseconds(calls, ahead=False)
    # One read and one write of the local logits is what a copy of them takes.
    say(copy_bytes_per_second=2 * size / times["copy"] * 1e3, ms=times["copy"])
    for name in calls:
        say(
            time="cross_entropy forward + backward",
            rows=WANTED.rows,
            classes=WANTED.classes,
            by=name,
            ms=times[name],
            ms_on_an_idle_device=idle[name],
            rate=times["copy"] / times[name],
            faster_than_loss_parallel=times["loss_parallel"] / times[name],
            extra_copies=extra[name],
        )
    part = torch.zeros(3, WANTED.rows, device=DEVICE)
    say(time="gather of three numbers a row", ms=milliseconds({"gather": lambda: gather(part, None)})["gather"])

    def forward() -> torch.Tensor:
        local.grad = None
        found: torch.Tensor = distributed.cross_entropy(local, target)
        return found

    say(time="Python, cross_entropy", **host_milliseconds(forward))


def host_milliseconds(forward: Callable[[], torch.Tensor], repeats: int = 20) -> dict[str, float]:
    """What Python takes for forward and for backward, medians."""
    found: dict[str, list[float]] = {"forward": [], "backward": []}
    for _ in range(repeats):
        dist.barrier()
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        loss = forward()
        between = time.perf_counter()
        loss.backward()
        found["forward"].append((between - began) * 1e3)
        found["backward"].append((time.perf_counter() - between) * 1e3)
    return {name: sorted(each)[repeats // 2] for name, each in found.items()}


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
    sys.stdout.flush()
    os._exit(0)  # a DTensor's mesh keeps Gloo's threads, which abort the interpreter now and then as it ends

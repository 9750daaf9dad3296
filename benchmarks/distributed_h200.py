"""Every distributed function on several GPUs over NCCL: checked against one device, then timed.

    torchrun --nproc-per-node 2 benchmarks/distributed_h200.py > results.jsonl

One JSON object a line, from rank 0.  `rate` is the fraction of the rate at which a device copies: 1 would be one read
and one write of its local logits.  About two minutes on two H200s, compilation included.
"""

from __future__ import annotations

import json
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import loss_parallel

import online_softmax as osm
from online_softmax import distributed

ROWS, CLASSES = 8192, 128256
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def say(**facts: object) -> None:
    """One result, on a line of its own."""
    if RANK == 0:
        print(json.dumps(facts), flush=True)


def milliseconds(call: object, repeats: int = 10) -> float:
    """The median over repeats of the slowest rank's time."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        dist.barrier()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        stop.record()
        stop.synchronize()
        slowest = torch.tensor(start.elapsed_time(stop), device="cuda")
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        times.append(slowest.item())
    return sorted(times)[len(times) // 2]


def far(got: torch.Tensor, want: torch.Tensor, whole: torch.Tensor | None = None) -> float:
    """|got - want| in eps of the whole tensor's largest value, on the worst rank."""
    whole = want if whole is None else whole
    same = torch.equal(got.isnan(), want.isnan())
    gap = (
        (got.double() - want.double()).abs().nan_to_num(0).max()
        if got.numel()
        else torch.zeros((), device="cuda").double()
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
    """Losses and normalisers over sharded classes."""
    for even in (True, False):
        borders = cuts(even)
        mine = slice(borders[RANK], borders[RANK + 1])
        weight = torch.rand(borders[-1], device="cuda") + 0.5
        for dtype in (torch.bfloat16, torch.float32):
            for options in (
                {},
                {"label_smoothing": 0.1},
                {"weight": weight, "label_smoothing": 0.2, "z_loss": 1e-3, "softcap": 20.0},
            ):
                for reduction in (
                    ("none",) if options else ("mean",)
                ):  # few kernels: compiling them takes most of the time
                    logits = (torch.randn(256, borders[-1], device="cuda") * 3).to(dtype)
                    target = torch.randint(borders[-1], (256,), device="cuda")
                    target[5] = -100
                    whole, local = logits.clone().requires_grad_(), logits[:, mine].clone().requires_grad_()
                    want = osm.cross_entropy(whole, target, reduction=reduction, **options)
                    got = distributed.cross_entropy(
                        local, target, vocab_start=mine.start, vocab_size=borders[-1], reduction=reduction, **options
                    )
                    up = torch.rand_like(want) + 0.5
                    want.backward(up)
                    got.backward(up)
                    loss, grad = far(got.detach(), want.detach()), far(local.grad, whole.grad[:, mine], whole.grad)
                    say(
                        check="cross_entropy",
                        even=even,
                        dtype=str(dtype),
                        reduction=reduction,
                        options=sorted(options),
                        loss=loss,
                        gradient=grad,
                        right=loss <= 2 and grad <= 4,
                    )
        x = torch.randn(64, borders[-1], device="cuda") * 3
        for name in ("softmax", "log_softmax", "logsumexp"):
            whole, local = x.clone().requires_grad_(), x[:, mine].clone().requires_grad_()
            want, got = getattr(osm, name)(whole, -1), getattr(distributed, name)(local, -1)
            part = want if name == "logsumexp" else want[:, mine]
            up = torch.randn_like(want)
            want.backward(up)
            got.backward(up if name == "logsumexp" else up[:, mine])
            result, grad = (
                far(got.detach(), part.detach(), want.detach()),
                far(local.grad, whole.grad[:, mine], whole.grad),
            )
            say(check=name, even=even, result=result, gradient=grad, right=result <= 2 and grad <= 4)
    merged = distributed.all_merge(osm.State.of(x[:, mine])).logsumexp()
    gap = far(merged, osm.logsumexp(x, -1))
    say(check="all_merge", result=gap, right=gap <= 2)
    h, w = (torch.randn(n, 512, device="cuda", dtype=torch.bfloat16) * 0.1 for n in (1000, borders[-1]))
    target = torch.randint(borders[-1], (1000,), device="cuda")
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
            q, k, v = (torch.randn(1, n, sum(lengths), 64, device="cuda").to(torch.bfloat16) for n in (8, 2, 2))
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


def copy_rate() -> float:
    """Bytes a millisecond, read and write counted."""
    a = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() / milliseconds(lambda: b.copy_(a))


def time_losses() -> None:
    """Cross-entropy forward and backward beside torch's loss_parallel."""
    rate = copy_rate()
    say(copy_bytes_per_second=rate * 1e3)
    local = torch.randn(ROWS, CLASSES // SIZE, device="cuda").to(torch.bfloat16).requires_grad_()
    target = torch.randint(CLASSES, (ROWS,), device="cuda")
    dist.broadcast(target, 0)
    size = local.numel() * local.element_size()
    least = 2 * size / rate

    def ours(**options: object) -> None:
        local.grad = None
        distributed.cross_entropy(local, target, **options).backward()

    mesh = init_device_mesh("cuda", (SIZE,))
    sharded = DTensor.from_local(local.detach(), mesh, [Shard(1)], run_check=False).requires_grad_()
    whole_target = DTensor.from_local(target, mesh, [Replicate()], run_check=False)

    def theirs() -> None:
        sharded.grad = None
        with loss_parallel():
            torch.nn.functional.cross_entropy(sharded, whole_target).backward()

    calls = {
        "online_softmax": ours,
        "online_softmax, label_smoothing": lambda: ours(label_smoothing=0.1),
        "loss_parallel": theirs,
    }
    for name, call in calls.items():
        call()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() - (size if local.grad is not None or sharded.grad is not None else 0)
        call()
        extra = (torch.cuda.max_memory_allocated() - before) / size
        ms = milliseconds(call)
        say(
            time="cross_entropy forward + backward",
            rows=ROWS,
            classes=CLASSES,
            by=name,
            ms=ms,
            rate=least / ms,
            extra_copies=extra,
        )
        local.grad = sharded.grad = None


def time_ring() -> None:
    """Ring attention beside one device with everything."""
    local_length = 32768
    for causal in (True, False):
        q, k, v = (
            torch.randn(1, 16, local_length, 128, device="cuda").to(torch.bfloat16).requires_grad_() for _ in range(3)
        )
        up = torch.randn_like(q)

        def ring(q=q, k=k, v=v, up=up, causal=causal) -> None:
            torch.autograd.grad(distributed.ring_attention(q, k, v, causal=causal), (q, k, v), up)

        spread = milliseconds(ring, 3)
        wide = [torch.cat([x.detach()] * SIZE, -2).requires_grad_() for x in (q, k, v)]
        wide_up = torch.cat([up] * SIZE, -2)

        def alone(wide=wide, up=wide_up, causal=causal) -> None:
            torch.autograd.grad(osm.attention(*wide, causal=causal), wide, up)

        one = milliseconds(alone, 3)
        say(
            time="ring_attention forward + backward",
            tokens=local_length * SIZE,
            causal=causal,
            ms=spread,
            one_device_ms=one,
            over_share=spread / (one / SIZE),
        )


def main() -> None:
    """All checks, then all times."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    torch.manual_seed(0)
    say(machine=torch.cuda.get_device_name(), ranks=SIZE, torch=torch.__version__, online_softmax=osm.__version__)
    for part in (check_losses, check_ring, time_losses, time_ring):
        part()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Every distributed function against one device, before anything is timed: sections of distributed_h200.py."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from ranks import DEVICE, RANK, SIZE, say

import online_softmax as osm
from online_softmax import distributed


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
            # An fp32 loss with smoothing has an error of nearly two units on one device: truth is in fp64.
            exact = {name: each.double() if isinstance(each, torch.Tensor) else each for name, each in options.items()}
            truth = osm.cross_entropy(logits.double(), target, **exact).to(got.dtype)
            loss, grad = far(got.detach(), truth), far(local.grad, whole.grad[:, mine], whole.grad)
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
        # A gradient formed from an fp32 log-sum-exp has that one's rounding, several eps: truth is in fp64.
        whole, local = x.double().requires_grad_(), x[:, mine].clone().requires_grad_()
        want, got = getattr(osm, name)(whole, -1), getattr(distributed, name)(local, -1)
        part = want if name == "logsumexp" else want[:, mine]
        up = torch.randn_like(want).float()
        want.backward(up.double())
        got.backward(up if name == "logsumexp" else up[:, mine])
        assert local.grad is not None
        assert whole.grad is not None
        result = far(got.detach(), part.detach().float(), want.detach().float())
        truth = whole.grad.float()
        one = x.clone().requires_grad_()
        getattr(osm, name)(one, -1).backward(up)
        assert one.grad is not None
        grad, of_one = far(local.grad, truth[:, mine], truth), far(one.grad, truth)
        say(check=name, result=result, gradient=grad, one_device_gradient=of_one, right=result <= 2 and grad <= 4)
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

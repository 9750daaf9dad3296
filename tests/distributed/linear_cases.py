"""Linear + cross-entropy with the head sharded over the vocabulary, against one process with all of it."""

from __future__ import annotations

import itertools

import torch
from tests.distributed.expected import collectives
from tests.distributed.sharded import cuts

import online_softmax as osm
from online_softmax import distributed


def case_linear_cross_entropy(rank, size):
    for even, dtype in itertools.product((True, False), (torch.float64, torch.float32)):
        borders = cuts(size, even)
        x, w = torch.randn(11, 6, dtype=dtype), torch.randn(borders[-1], 6, dtype=dtype)
        target = torch.randint(borders[-1], (11,))
        target[4] = -100
        weight, bias = torch.rand(borders[-1]) + 0.5, torch.randn(borders[-1], dtype=dtype)
        for options in (
            {},
            {"reduction": "none"},
            {"reduction": "sum", "label_smoothing": 0.2, "weight": weight, "z_loss": 0.01},
            {"linear_bias": bias},
            {"linear_bias": bias, "reduction": "none"},
        ):
            whole_x, whole_w = x.clone().requires_grad_(), w.clone().requires_grad_()
            start, stop = borders[rank], borders[rank + 1]
            local_x, local_w = x.clone().requires_grad_(), w[start:stop].clone().requires_grad_()
            options = dict(options)
            biases = [None, None]
            if "linear_bias" in options:
                options.pop("linear_bias")
                biases = [bias.clone().requires_grad_(), bias[start:stop].clone().requires_grad_()]
            logits = whole_x @ whole_w.T if biases[0] is None else whole_x @ whole_w.T + biases[0]
            want = osm.cross_entropy(logits, target, **options)
            options["linear_bias"] = biases[1]
            got = distributed.linear_cross_entropy(
                local_x, local_w, target, vocab_start=start, vocab_size=borders[-1], chunk_rows=4, **options
            )
            torch.testing.assert_close(got, want, rtol=3e-6, atol=3e-6)
            upstream = torch.randn(want.shape, dtype=dtype)
            want.backward(upstream)
            got.backward(upstream)
            eps = 16 * torch.finfo(dtype).eps
            torch.testing.assert_close(local_x.grad, whole_x.grad, rtol=0, atol=eps * whole_x.grad.abs().max().item())
            torch.testing.assert_close(
                local_w.grad, whole_w.grad[start:stop], rtol=0, atol=eps * whole_w.grad.abs().max().item()
            )
            if biases[0] is not None:
                wanted = biases[0].grad
                close = {"rtol": 0, "atol": eps * wanted.abs().max().item()}
                torch.testing.assert_close(biases[1].grad, wanted[start:stop], **close)


def case_linear_cross_entropy_makes_no_gradient_that_is_not_asked_for(rank, size):
    borders = cuts(size, True)
    start, stop = borders[rank], borders[rank + 1]
    target = torch.randint(borders[-1], (11,))
    everything = torch.randn(11, 6), torch.randn(borders[-1], 6), torch.randn(borders[-1])
    for reduction, asked in itertools.product(("mean", "none"), itertools.product((False, True), repeat=3)):
        if not any(asked):
            continue
        whole = [each.clone().requires_grad_(on) for each, on in zip(everything, asked, strict=True)]
        x, w, bias = whole
        want = osm.cross_entropy(x @ w.T + bias, target, reduction=reduction)
        local = [everything[0].clone(), everything[1][start:stop].clone(), everything[2][start:stop].clone()]
        for each, on in zip(local, asked, strict=True):
            each.requires_grad_(on)
        more = {"linear_bias": local[2], "vocab_start": start, "vocab_size": borders[-1], "chunk_rows": 4}
        with torch.profiler.profile() as profile:
            got = distributed.linear_cross_entropy(*local[:2], target, reduction=reduction, **more)
            upstream = torch.ones_like(want)
            got.backward(upstream)
        want.backward(upstream)
        sums = [name for name in collectives(profile) if name == "c10d::allreduce_"]
        assert len(sums) == (3 if asked[0] else 0), "one a chunk, if the input's gradient is wanted"
        for mine, one, part in zip(local, whole, (slice(None), slice(start, stop), slice(start, stop)), strict=True):
            assert (mine.grad is None) == (one.grad is None)
            if one.grad is not None:
                torch.testing.assert_close(mine.grad, one.grad[part], rtol=1e-5, atol=1e-5)


def case_linear_cross_entropy_under_autocast(rank, size):
    borders = cuts(size, True)
    mine = slice(borders[rank], borders[rank + 1])
    kind = torch.get_default_device().type
    x, w, bias = torch.randn(11, 16), torch.randn(borders[-1], 16), torch.randn(borders[-1])
    target = torch.randint(borders[-1], (11,))
    for reduction, dtype in itertools.product(("mean", "none"), (torch.float32, torch.bfloat16)):
        whole = [each.clone().requires_grad_() for each in (x.to(dtype), w, bias)]
        local = [each.clone().requires_grad_() for each in (x.to(dtype), w[mine], bias[mine])]
        with torch.autocast(kind, torch.bfloat16):
            want = osm.linear_cross_entropy(*whole[:2], target, linear_bias=whole[2], reduction=reduction)
            got = distributed.linear_cross_entropy(
                *local[:2], target, linear_bias=local[2], reduction=reduction, vocab_size=borders[-1]
            )
        assert got.dtype == want.dtype == torch.float32
        want.sum().backward()
        got.sum().backward()
        torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)
        for mine_, one, part in zip(local, whole, (slice(None), mine, mine), strict=True):
            assert mine_.grad.dtype == mine_.dtype
            torch.testing.assert_close(mine_.grad, one.grad[part], rtol=2e-2, atol=2e-2 * one.grad.abs().max().item())

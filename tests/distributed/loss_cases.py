"""Cross-entropy over sharded classes, against one process with all of them."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from tests.distributed.expected import close_gradient, collectives, within_ulps
from tests.distributed.sharded import cuts, rows

import online_softmax as osm
from online_softmax import distributed

OPTIONS = [
    {},
    {"label_smoothing": 0.1},
    {"label_smoothing": 0.3, "z_loss": 1e-3, "softcap": 5.0, "scale": 0.7},
    {"z_loss": 1e-2},
    {"softcap": 3.0},
]


def both(logits, target, rank, borders, upstream=None, **options):
    """The loss with sharded classes, and on one device in float64 (float32's own error there comes near 2 units).

    Gradients agree with those of one device in the same dtype.
    """
    start, stop = borders[rank], borders[rank + 1]
    whole = logits.clone().requires_grad_()
    local = logits[:, start:stop].clone().requires_grad_()
    want = osm.cross_entropy(whole, target, **options)
    got = distributed.cross_entropy(local, target, vocab_start=start, vocab_size=logits.shape[1], **options)
    upstream = torch.ones_like(want) if upstream is None else upstream.to(want.dtype)
    want.backward(upstream)
    got.backward(upstream)
    close_gradient(local.grad, whole.grad[:, start:stop], whole.grad)
    exact = {name: each.double() if isinstance(each, torch.Tensor) else each for name, each in options.items()}
    return got.detach(), osm.cross_entropy(logits.double(), target, **exact).to(got.dtype)


def case_equals_one_device(rank, size):
    for even, dtype in itertools.product((True, False), (torch.float32, torch.float64, torch.bfloat16)):
        borders = cuts(size, even)
        logits, target = rows(borders[-1], dtype)
        weight = torch.rand(borders[-1]) + 0.5
        for options, reduction, weighted in itertools.product(OPTIONS, ("none", "mean", "sum"), (False, True)):
            upstream = torch.randn(len(target)) if reduction == "none" else torch.tensor(0.5)
            more = {"weight": weight} if weighted else {}
            got, want = both(logits, target, rank, borders, upstream, reduction=reduction, **more, **options)
            within_ulps(got, want, 2.0, logits.abs().max().item())


def case_num_items_divide(rank, size):
    borders = cuts(size, True)
    logits, target = rows(borders[-1])
    got, want = both(logits, target, rank, borders, num_items=100)
    within_ulps(got, want, 2.0)


def case_one_shard_may_hold_everything_and_the_others_nothing(rank, size):
    logits, target = rows(41)
    for holder in (0, size - 1):
        borders = [0] * (holder + 1) + [41] * (size - holder)
        for options in OPTIONS:
            got, want = both(logits, target, rank, borders, **options)
            within_ulps(got, want, 2.0, logits.abs().max().item())


def case_masked_infinite_and_nan_rows(rank, size):
    borders = cuts(size, False)
    logits, target = rows(borders[-1])
    logits[0, 35:] = -torch.inf
    target[0] = 2
    logits[1] = -torch.inf
    logits[3, 4] = torch.nan
    logits[4, 5] = torch.inf
    logits[5, :40] = -torch.inf
    logits[6, target[6]] = -torch.inf
    for smoothing in (0.0, 0.1):
        more = {"reduction": "none", "label_smoothing": smoothing}
        got, want = both(logits, target, rank, borders, **more)
        within_ulps(got, want, 2.0, 12.0)
    weight = torch.ones(borders[-1])
    weight[35:] = 0.0
    got, want = both(logits, target, rank, borders, weight=weight, **more)
    within_ulps(got, want, 2.0, 12.0)


def case_a_mean_over_rows_that_weigh_nothing(rank, size):
    borders = cuts(size, False)
    logits, target = rows(borders[-1])
    target[:], target[4] = 2, -100
    weight = (torch.arange(borders[-1]) != 2).to(logits.dtype)
    start, stop = borders[rank], borders[rank + 1]
    for options in OPTIONS[:3]:
        local = logits[:, start:stop].clone().requires_grad_()
        more = {"vocab_start": start, "vocab_size": borders[-1], "weight": weight, **options}
        loss = distributed.cross_entropy(local, target, **more)
        loss.backward()
        assert loss.isnan()
        assert local.grad[target == 2].isnan().all()
        assert (local.grad[4] == 0).all()


def case_the_dominant_class_keeps_its_small_loss(rank, size):
    borders = cuts(size, True)
    logits = torch.full((2, borders[-1]), -40.0)
    logits[:, 3] = 0.0
    start, stop = borders[rank], borders[rank + 1]
    more = {"vocab_start": start, "vocab_size": borders[-1], "reduction": "none"}
    got = distributed.cross_entropy(logits[:, start:stop], torch.tensor([3, 3]), **more)
    # The CUDA kernels sum a shard's exponentials in fp32, as one device does: beside 1 theirs are lost.
    beside = borders[-1] - (12 if logits.is_cuda else 1)
    loss = math.log1p(beside * math.exp(-40.0))
    assert 0 < loss < 1e-15
    within_ulps(got, torch.full((2,), loss), 4.0)


def case_capped_logits_of_sure_rows(rank, size):
    logits = torch.zeros(20, 4 * size)
    logits[:, 1] = torch.arange(50.0, 90.0, 2.0)
    target = torch.ones(20, dtype=torch.long)
    mine = slice(4 * rank, 4 * rank + 4)
    for smoothing, softcap in itertools.product((0.0, 0.1), (30.0, 50.0)):
        options = {"softcap": softcap, "label_smoothing": smoothing, "reduction": "none"}
        whole = logits.clone().double().requires_grad_()
        want = osm.cross_entropy(whole, target, **options)
        local = logits[:, mine].clone().requires_grad_()
        got = distributed.cross_entropy(local, target, **options)
        if not logits.is_cuda:
            assert (got >= 0).all()
        # A unit of the capped logit is some ten of so small a loss.
        exact = not (smoothing or logits.is_cuda)
        within_ulps(got.detach(), want.detach().float(), 64.0 if exact else 4.0, 0.0 if exact else 50.0)
        want.sum().backward()
        got.sum().backward()
        grad = whole.grad.float()
        if not logits.is_cuda:
            torch.testing.assert_close(local.grad, grad[:, mine], rtol=1e-4, atol=1e-7 if smoothing else 1e-15)


def case_large_logits_keep_their_gaps(rank, size):
    borders = cuts(size, True)
    logits, target = rows(borders[-1])
    got, want = both(logits * 0.25 + 2.0**20, target, rank, borders, reduction="none")
    assert torch.allclose(got, want, atol=1e-6)


def case_aux_is_that_of_whole_rows(rank, size):
    borders = cuts(size, False)
    logits, target = rows(borders[-1])
    logits[0, [1, 2, 35]] = 50.0  # a tie: the first counts
    logits[3, 36] = torch.nan
    start, stop = borders[rank], borders[rank + 1]
    local, whole = (x.clone().requires_grad_() for x in (logits[:, start:stop], logits))
    more = {"return_aux": True, "z_loss": 0.1, "reduction": "none"}
    _, got = distributed.cross_entropy(local, target, vocab_start=start, vocab_size=borders[-1], **more)
    _, want = osm.cross_entropy(whole, target, **more)
    assert torch.equal(got.predicted, want.predicted)
    within_ulps(got.lse.detach(), want.lse.detach(), 2.0)
    within_ulps(got.z_loss, want.z_loss, 6.0)
    torch.testing.assert_close(got.entropy, want.entropy, rtol=1e-5, atol=1e-5, equal_nan=True)
    upstream = torch.randn(len(target))
    got.lse.backward(upstream)
    want.lse.backward(upstream)
    close_gradient(local.grad, whole.grad[:, start:stop], whole.grad)


def case_one_collective_forward_and_none_backward(rank, size):
    borders = cuts(size, True)
    logits, target = rows(borders[-1])
    with torch.profiler.profile() as forward:
        for options in OPTIONS:
            local = logits[:, borders[rank] : borders[rank + 1]].clone().requires_grad_()
            distributed.cross_entropy(local, target, **options)
    with torch.profiler.profile() as both:
        for options in OPTIONS:
            loss = distributed.cross_entropy(local, target, **options)
            loss.backward()
    for found in map(collectives, (forward, both)):
        assert len(found) == len(OPTIONS), found


def case_a_target_that_is_written_to_before_backward(rank, size):
    borders = cuts(size, True)
    logits, target = rows(borders[-1])
    weight = torch.rand(borders[-1])
    found = []
    for spoil in (False, True):
        local, given = logits[:, borders[rank] : borders[rank + 1]].clone().requires_grad_(), target.clone()
        loss = distributed.cross_entropy(local, given, weight, label_smoothing=0.1)
        if spoil:
            given += 1
        if spoil and logits.is_cuda:  # whose kernel reads it again
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
            return
        loss.backward()
        found.append(local.grad)
    assert torch.equal(*found)


def case_extra_memory_is_one_gradient(rank, size):
    from torch.utils._python_dispatch import TorchDispatchMode

    local = torch.randn(64, 500)
    largest = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for each in result if isinstance(result, tuple | list) else [result]:
                if isinstance(each, torch.Tensor) and each.data_ptr() != local.data_ptr():
                    largest.append(each.untyped_storage().nbytes())
            return result

    target = torch.randint(500 * size, (64,))
    recorded = local.requires_grad_()
    with Watch():
        loss = distributed.cross_entropy(recorded, target, label_smoothing=0.1)
    assert max(largest) < local.numel() * 4, "forward makes nothing of the logits' size"
    loss.backward()


def case_dtensors(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh(torch.get_default_device().type, (size,))
    logits, target = rows(41)
    whole = logits.clone().requires_grad_()
    given = distribute_tensor(logits, mesh, [Shard(1)]).requires_grad_()
    want, got = osm.cross_entropy(whole, target), distributed.cross_entropy(given, target)
    within_ulps(got.detach(), want.detach(), 2.0)
    want.backward()
    got.backward()
    close_gradient(given.grad.full_tensor(), whole.grad)
    within_ulps(distributed.logsumexp(given, 1).detach(), osm.logsumexp(logits, 1), 2.0)
    with pytest.raises(ValueError, match="placements"):
        distributed.cross_entropy(distribute_tensor(logits, mesh, [Shard(0)]), target)
    with pytest.raises(ValueError, match="placements"):
        distributed.cross_entropy(distribute_tensor(logits, mesh, [Replicate()]), target)

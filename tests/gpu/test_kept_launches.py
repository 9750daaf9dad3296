"""A launch that is kept serves only calls like the one it was made by."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.utils.checkpoint
from cases import DEVICE, random_rows

import online_softmax as osm

if torch.cuda.is_available():
    from online_softmax._cuda import ready


@pytest.fixture(autouse=True)
def _nothing_kept():
    ready._ready.clear()


def afresh(call):
    """What the call gives when no launch is kept."""
    ready._ready.clear()
    return call()


def layouts(dtype):
    """Tensors of one shape that lie in memory in ways that matter to a kernel."""
    x = random_rows(8, 256, dtype)
    wide = random_rows(8, 2 * 256 + 1, dtype)
    return {
        "contiguous": x,
        "starts off 16 bytes": wide.flatten()[1 : 1 + 8 * 256].view(8, 256),
        "rows apart": wide[:, :256],
        "rows apart, off 16 bytes": wide[:, 3:259],
        "elements apart": wide[:, : 2 * 256 : 2],
        "columns": random_rows(256, 8, dtype).T,
        "one row for all": x[:1].expand(8, 256),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_rows_in_every_layout(name, dtype):
    def call(x):
        x = x.detach().requires_grad_()
        y = getattr(osm, name)(x, -1)
        return y.detach(), *torch.autograd.grad(y, x, torch.ones_like(y))

    # detach keeps the strides; the second round finds what the first has kept, under seven keys.
    given = layouts(dtype)
    wanted = {key: afresh(lambda x=x: call(x)) for key, x in given.items()}
    ready._ready.clear()
    for _ in range(2):
        for key, x in given.items():
            for one, other in zip(call(x), wanted[key], strict=True):
                assert torch.equal(one, other), key
    assert ready._ready


def test_dtypes_and_autocast():
    x = random_rows(8, 256, torch.bfloat16)
    half, single = osm.softmax(x), osm.softmax(x, dtype=torch.float32)
    with torch.autocast("cuda"):
        assert torch.equal(osm.softmax(x), single)
    assert torch.equal(osm.softmax(x), half)
    assert half.dtype == torch.bfloat16
    assert single.dtype == torch.float32


def test_one_shape_along_two_axes():
    x = random_rows(64, 64, torch.float32)
    wanted = [afresh(lambda axis=axis: osm.softmax(x, axis)) for axis in (0, 1)]
    ready._ready.clear()
    for _ in range(2):
        assert all(torch.equal(osm.softmax(x, axis), wanted[axis]) for axis in (0, 1))
    x = random_rows(64, 64, torch.float32).reshape(64, 64, 1)
    for _ in range(2):
        assert torch.equal(osm.softmax(x, 1)[:, :, 0], osm.softmax(x[:, :, 0]))
        assert torch.equal(osm.softmax(x, 2), torch.ones_like(x))


def test_cross_entropy_with_changing_options_layouts_and_targets():
    logits = layouts(torch.float32)
    target = torch.randint(0, 256, (8,), device=DEVICE)
    calls = [
        (key, lambda x=x, t=t, o=o: osm.cross_entropy_with_grad(x, t, **o))
        for key, x in logits.items()
        for t in (target, target.int(), torch.stack([target, target], 1)[:, 0])
        for o in (
            {},
            {"reduction": "sum"},
            {"scale": 2.0},
            {"scale": 3.0},
            {"z_loss": 0.1},
            {"ignore_index": int(target[0])},
            {"num_items": 5},
            {"num_items": 7.0},
            {"num_items": torch.tensor(7.0, device=DEVICE)},
            {"weight": torch.rand(256, device=DEVICE)},
            {"weight": torch.rand(256, device=DEVICE), "label_smoothing": 0.1},
        )
    ]
    chances = torch.softmax(random_rows(8, 256, torch.float32), 1)
    calls += [("probabilities", lambda p=p: osm.cross_entropy_with_grad(chances, p)) for p in (chances, chances.half())]
    wanted = [afresh(call) for _, call in calls]
    ready._ready.clear()
    for _ in range(2):
        for (key, call), (loss, gradient) in zip(calls, wanted, strict=True):
            again, once_more = call()
            assert torch.equal(loss, again), key
            assert torch.equal(gradient, once_more), key


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_what_a_repeated_loss_keeps_for_later_backwards(dtype, reduction):
    x = random_rows(9, 128, dtype)
    target = torch.randint(0, 128, (9,), device=DEVICE)
    target[2] = -100

    def gradients():
        leaf = x.clone().requires_grad_()
        loss = osm.cross_entropy(leaf, target, reduction=reduction)
        found = [torch.autograd.grad(loss, leaf, loss.new_tensor(by), retain_graph=True)[0] for by in (1.0, 0.5, 3.0)]
        again = torch.autograd.grad(loss, leaf, create_graph=True)[0]
        return loss.detach(), *found, again.detach()

    wanted = afresh(gradients)
    for _ in range(3):
        assert all(torch.equal(one, other) for one, other in zip(gradients(), wanted, strict=True))


def test_a_repeated_loss_in_a_graph_and_on_another_stream():
    x, target = random_rows(8, 256, torch.float32), torch.randint(0, 256, (8,), device=DEVICE)
    wanted = osm.cross_entropy_with_grad(x, target)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        other = osm.cross_entropy_with_grad(x, target)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = osm.cross_entropy_with_grad(x, target)
    graph.replay()
    for found in (other, captured):
        assert all(torch.equal(one, two) for one, two in zip(found, wanted, strict=True))
    target.add_(1).remainder_(256)
    x.neg_()
    graph.replay()
    wanted = osm.cross_entropy_with_grad(x, target)
    assert all(torch.equal(one, two) for one, two in zip(captured, wanted, strict=True))


def test_a_first_and_a_repeated_loss_save_alike():
    # torch.utils.checkpoint runs forward twice, and compares what is saved.
    x = random_rows(6, 100, torch.float32).requires_grad_()
    target = torch.arange(6, device=DEVICE)
    want = torch.autograd.grad(torch.nn.functional.cross_entropy(x.tanh(), target), x)[0]
    for _ in range(2):
        loss = torch.utils.checkpoint.checkpoint(lambda h: osm.cross_entropy(h.tanh(), target), x, use_reentrant=False)
        torch.testing.assert_close(torch.autograd.grad(loss, x)[0], want)


def test_losses_of_rows_can_be_masked_in_place():
    x = random_rows(6, 100, torch.float32).requires_grad_()
    target = torch.arange(6, device=DEVICE)
    mask = torch.arange(6, device=DEVICE) % 2.0
    want = torch.autograd.grad((torch.nn.functional.cross_entropy(x, target, reduction="none") * mask).sum(), x)[0]
    loss = osm.cross_entropy(x, target, reduction="none")
    loss *= mask
    torch.testing.assert_close(torch.autograd.grad(loss.sum(), x)[0], want)


def test_streams_and_graphs():
    x = random_rows(8, 256, torch.float32)
    wanted = osm.softmax(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = osm.softmax(x)
    side.synchronize()
    assert torch.equal(y, wanted)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = osm.softmax(x)
    x.neg_()
    graph.replay()
    assert torch.equal(z, osm.softmax(x))
    assert not torch.equal(z, wanted)


def test_threads_share_what_is_kept():
    given = [random_rows(8, 256, torch.float32, seed=seed) for seed in range(8)]
    wanted = [osm.softmax(x) for x in given]
    torch.cuda.synchronize()
    right = []

    def work(x, y):
        right.append(all(torch.equal(osm.softmax(x), y) for _ in range(200)))

    threads = [threading.Thread(target=work, args=pair) for pair in zip(given, wanted, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 8


def test_no_more_than_a_bound_is_kept(monkeypatch):
    monkeypatch.setattr(ready, "_KEPT", 3)
    x = random_rows(8, 256, torch.float32)
    for rows in range(1, 9):
        assert torch.equal(osm.softmax(x[:rows]), osm.softmax(x)[:rows])
        assert len(ready._ready) <= 3

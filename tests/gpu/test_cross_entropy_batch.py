"""A small batch in one launch gives, bit for bit, what three launches give; and torch scales as the kernel does."""

from __future__ import annotations

import threading

import pytest
import torch
from cases import DEVICE, random_rows

import online_softmax as osm
from online_softmax.ops.cross_entropy import switches

if torch.cuda.is_available():
    from online_softmax._cuda import ready
    from online_softmax.ops.cross_entropy import batch, cuda

EVERY = {"label_smoothing": 0.1, "scale": -0.7, "softcap": 5.0, "z_loss": 0.1}


@pytest.fixture(autouse=True)
def _nothing_kept():
    ready._ready.clear()


def bits(tensors):
    return [tensor.reshape(-1).view(torch.uint8) for tensor in tensors]


def in_three_launches(monkeypatch, call):
    with monkeypatch.context() as patch:
        patch.setattr(batch, "fitting", lambda *_: None)
        ready._ready.clear()
        found = call()
    ready._ready.clear()
    return found


def some(rows, classes, dtype):
    x, target = random_rows(rows, classes, dtype), torch.randint(0, classes, (rows,), device=DEVICE)
    if rows > 4:  # ignored rows, a class without a chance, and a label that is no class
        x[1, 0], x[2], x[3, -1] = torch.nan, -torch.inf, -torch.inf
        target[1], target[2], target[3] = -100, -100, 0
    return x, target


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("rows", "classes"), [(1, 1), (8, 128), (7, 301), (256, 10)])
@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"num_items": 7, "z_loss": 0.01}, EVERY])
def test_the_bits_of_three_launches(monkeypatch, rows, classes, dtype, options):
    x, target = some(rows, classes, dtype)
    weight = torch.rand(classes, device=DEVICE) if options is EVERY else None

    def call():
        return *osm.cross_entropy_with_grad(x, target, weight, **options), osm.cross_entropy(
            x, target, weight, **options
        )

    for one, three in zip(bits(call()), bits(in_three_launches(monkeypatch, call)), strict=True):
        assert torch.equal(one, three)


def test_labels_of_no_class_spoil_the_loss_and_their_rows_alone():
    x, target = some(8, 128, torch.float32)
    target[5] = 128
    loss, gradient = osm.cross_entropy_with_grad(x, target, reduction="sum")
    assert loss.isnan()
    assert gradient.isnan().any(1).tolist() == [row == 5 for row in range(8)]
    loss, gradient = osm.cross_entropy_with_grad(x, target, torch.ones(128, device=DEVICE))
    assert loss.isnan()


def test_where_it_ends():
    assert switches.batch(0, 32) is None
    for words, most in ((1, 256), (5, 128), (16, 64), (32, 32), (33, 16), (128, 16)):
        assert switches.batch(most, words) is not None
        assert switches.batch(most + 1, words) is None
    assert switches.batch(1, 129) is None


def test_in_a_new_thread():
    x, target = some(8, 128, torch.float32)
    wanted, found = osm.cross_entropy_with_grad(x, target), []
    torch.cuda.synchronize()
    thread = threading.Thread(target=lambda: found.append(osm.cross_entropy_with_grad(x, target)))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert all(torch.equal(one, other) for one, other in zip(bits(wanted), bits(found[0]), strict=True))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
def test_on_a_device_that_is_not_the_current_one():
    x, target = some(8, 128, torch.float32)
    wanted = osm.cross_entropy_with_grad(x, target)
    for _ in range(2):
        found = osm.cross_entropy_with_grad(x.to("cuda:1"), target.to("cuda:1"))
        assert all(torch.equal(one, other.to(one.device)) for one, other in zip(wanted, found, strict=True))


@pytest.mark.parametrize("by", [1.0, 0.3, -3.7, 1e-42, 65536.0, torch.inf, torch.nan])
def test_torch_scales_as_the_kernel_does(by):
    exponents = torch.randint(-140, 120, (64, 64), device=DEVICE).float()
    gradient = torch.randn(64, 64, device=DEVICE) * torch.exp2(exponents)
    gradient[0, :6] = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-40])
    factor = torch.tensor(by, device=DEVICE)
    launch = cuda._load_rescale(gradient)
    by_kernel = gradient.clone()
    launch.kernel(launch.grid, by_kernel.data_ptr(), factor.data_ptr(), *launch.rest)
    by_torch = gradient.clone()
    assert cuda.rescale(by_torch, factor) is by_torch
    assert torch.equal(by_torch.isnan(), by_kernel.isnan())
    numbers = ~by_kernel.isnan()
    assert torch.equal(*(x[numbers].view(torch.int32) for x in (by_torch, by_kernel)))

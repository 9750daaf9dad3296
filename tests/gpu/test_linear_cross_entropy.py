"""linear_cross_entropy with the vocabulary in several chunks, on the GPU against float64."""

from __future__ import annotations

import pytest
import torch
from cases import DEVICE, DTYPES

import online_softmax as osm
from online_softmax.ops.linear_cross_entropy import plan

cuda_ignored = (
    pytest.importorskip("online_softmax.ops.linear_cross_entropy.cuda_ignored") if torch.cuda.is_available() else None
)

ROWS, HIDDEN, CLASSES = 96, 64, 5000
# Relative to the gradient's norm: logits are rounded to their dtype between two products.
BOUND = {torch.float16: 5e-3, torch.bfloat16: 2e-2, torch.float32: 1e-4, torch.float64: 1e-10}
CASES = [
    {},
    {"z_loss": 1e-3, "scale": 0.7, "softcap": 5.0},
    {"label_smoothing": 0.1},
    {"label_smoothing": 0.1, "weighted": True, "z_loss": 1e-3},
    {"weighted": True, "scale": 0.7, "softcap": 5.0},
]


def truth_of(x, weight, target, class_weight, label_smoothing=0.0, z_loss=0.0, scale=1.0, softcap=None):
    """(loss, gradient of x, gradient of the weight) in float64."""
    x, weight = (each.detach().double().requires_grad_() for each in (x, weight))
    logits = x @ weight.T * scale
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    loss = torch.nn.functional.cross_entropy(
        logits, target, class_weight, reduction="none", label_smoothing=label_smoothing
    )
    kept = target != -100
    loss = (loss + z_loss * torch.where(kept, logits.logsumexp(1) ** 2, 0.0)).sum()
    return loss.detach(), *torch.autograd.grad(loss, (x, weight))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_vocabulary_in_chunks(dtype, case, monkeypatch):
    monkeypatch.setitem(plan.LEAST_BYTES, "cuda", 1)
    assert len(plan.class_chunks(ROWS, HIDDEN, CLASSES, dtype.itemsize, "cuda")) > 4
    case = dict(case)
    generator = torch.Generator(device=DEVICE).manual_seed(1)
    x = torch.randn(ROWS, HIDDEN, device=DEVICE, generator=generator).to(dtype).requires_grad_()
    weight = (torch.randn(CLASSES, HIDDEN, device=DEVICE, generator=generator) / 4).to(dtype).requires_grad_()
    target = torch.randint(0, CLASSES, (ROWS,), device=DEVICE, generator=generator)
    target[::7] = -100
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    class_weight = None
    if case.pop("weighted", False):
        class_weight = torch.rand(CLASSES, device=DEVICE, generator=generator).to(compute) + 0.1
    wide = None if class_weight is None else class_weight.double()
    loss, dx, dw = truth_of(x, weight, target, wide, **case)
    got = osm.linear_cross_entropy(x, weight, target, weight=class_weight, reduction="sum", memory="least", **case)
    got.backward()
    assert abs(got.item() - loss.item()) <= BOUND[dtype] * abs(loss.item())
    for gradient, truth in ((x.grad, dx), (weight.grad, dw)):
        assert (gradient.double() - truth).norm() <= BOUND[dtype] * truth.norm()
    assert (x.grad[::7] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden", [64, 50])
@pytest.mark.parametrize("way", [{}, {"chunk_rows": 40}, {"memory": "least"}])
def test_ignored_rows_may_hold_anything(dtype, hidden, way, monkeypatch):
    monkeypatch.setitem(plan.LEAST_BYTES, "cuda", 1)
    generator = torch.Generator(device=DEVICE).manual_seed(2)
    x = torch.randn(ROWS, hidden, device=DEVICE, generator=generator).to(dtype)
    weight = (torch.randn(CLASSES, hidden, device=DEVICE, generator=generator) / 4).to(dtype).requires_grad_()
    target = torch.randint(0, CLASSES, (ROWS,), device=DEVICE, generator=generator)
    target[::7] = -100
    loss, dx, dw = truth_of(x, weight, target, None)
    x[::7] = torch.nan
    x[0] = torch.inf
    x.requires_grad_()
    got = osm.linear_cross_entropy(x, weight, target, reduction="sum", **way)
    got.backward()
    assert abs(got.item() - loss.item()) <= BOUND[dtype] * abs(loss.item())
    for gradient, truth in ((x.grad, dx), (weight.grad, dw)):
        assert (gradient.double() - truth).norm() <= BOUND[dtype] * truth.norm()
    assert (x.grad[::7] == 0).all()


@pytest.mark.parametrize("way", [{}, {"chunk_rows": 40}, {"memory": "least"}])
@pytest.mark.parametrize("items", [None, 0])
def test_a_mean_that_would_divide_by_zero_is_nan_and_ignored_rows_have_no_gradient(items, way, monkeypatch):
    monkeypatch.setitem(plan.LEAST_BYTES, "cuda", 1)
    x = torch.randn(ROWS, HIDDEN, device=DEVICE, requires_grad=True)
    weight = torch.randn(CLASSES, HIDDEN, device=DEVICE, requires_grad=True)
    target, by = torch.full((ROWS,), 3, device=DEVICE), torch.ones(CLASSES, device=DEVICE)
    by[3] = 0
    divided = {"weight": by} if items is None else {"num_items": torch.tensor(items, device=DEVICE)}
    for ignored in (slice(None, None, 7), slice(None)):
        target[ignored] = -100
        loss = osm.linear_cross_entropy(x, weight, target, **divided, **way)
        dx, dw = torch.autograd.grad(loss, (x, weight))
        assert loss.isnan()
        assert (dx[target == -100] == 0).all()
        assert dx[target == 3].isnan().all()
        assert (dw == 0).all() if ignored == slice(None) else dw.isnan().any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("classes", [5000, 777])
@pytest.mark.parametrize("way", [{}, {"chunk_rows": 40}, {"memory": "least"}])
def test_the_bias_gets_its_gradient(dtype, classes, way, monkeypatch):
    monkeypatch.setitem(plan.LEAST_BYTES, "cuda", 1)
    generator = torch.Generator(device=DEVICE).manual_seed(3)
    x = torch.randn(ROWS, HIDDEN, device=DEVICE, generator=generator).to(dtype)
    weight = (torch.randn(classes, HIDDEN, device=DEVICE, generator=generator) / 4).to(dtype)
    bias = torch.randn(classes, device=DEVICE, generator=generator).to(dtype).requires_grad_()
    target = torch.randint(0, classes, (ROWS,), device=DEVICE, generator=generator)
    wide = bias.detach().double().requires_grad_()
    loss = torch.nn.functional.cross_entropy(x.double() @ weight.double().T + wide, target, reduction="sum")
    loss.backward()
    got = osm.linear_cross_entropy(x, weight, target, linear_bias=bias, reduction="sum", **way)
    got.backward()
    assert abs(got.item() - loss.item()) <= BOUND[dtype] * abs(loss.item())
    assert (bias.grad.double() - wide.grad).norm() <= BOUND[dtype] * wide.grad.norm()


@pytest.mark.parametrize("dtype", DTYPES)
def test_least_memory_gives_the_same_bits_with_and_without_the_last_chunk_s_logits(dtype, monkeypatch):
    monkeypatch.setitem(plan.LEAST_BYTES, "cuda", 1)
    generator = torch.Generator(device=DEVICE).manual_seed(4)
    x = torch.randn(ROWS, HIDDEN, device=DEVICE, generator=generator).to(dtype).requires_grad_()
    weight = (torch.randn(CLASSES, HIDDEN, device=DEVICE, generator=generator) / 4).to(dtype).requires_grad_()
    target = torch.randint(0, CLASSES, (ROWS,), device=DEVICE, generator=generator)
    loss = osm.linear_cross_entropy(x, weight, target, memory="least")
    first = torch.autograd.grad(loss, (x, weight), retain_graph=True)
    second = torch.autograd.grad(loss, (x, weight))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("labels", [torch.int64, torch.int32])
def test_unreduced_losses_and_gradients_into_lse_by_chunks_of_classes(labels, monkeypatch):
    """Each row with its own incoming gradients; an ignored row and one whose class there is not among them."""
    monkeypatch.setitem(plan.LEAST_BYTES, "cuda", 1)
    generator = torch.Generator(device=DEVICE).manual_seed(5)
    x = torch.randn(ROWS, HIDDEN, device=DEVICE, generator=generator).requires_grad_()
    weight = (torch.randn(CLASSES, HIDDEN, device=DEVICE, generator=generator) / 4).requires_grad_()
    target = torch.randint(0, CLASSES, (ROWS,), device=DEVICE, generator=generator)
    target[3] = -100
    by_loss, by_lse = torch.rand(2, ROWS, device=DEVICE, generator=generator)
    wide, wide_weight = (leaf.detach().double().requires_grad_() for leaf in (x, weight))
    logits = wide @ wide_weight.T
    lse = logits.logsumexp(1)
    losses = torch.nn.functional.cross_entropy(logits, target, reduction="none") + torch.where(
        target != -100, 1e-3 * lse**2, 0.0
    )
    options = {"reduction": "none", "z_loss": 1e-3, "memory": "least"}
    for with_lse in (False, True):
        truth = (losses * by_loss).sum() + ((lse * by_lse).sum() if with_lse else 0.0)
        expected = torch.autograd.grad(truth, (wide, wide_weight), retain_graph=True)
        got, aux = osm.linear_cross_entropy(x, weight, target.to(labels), return_aux=True, **options)
        if not with_lse:
            got = osm.linear_cross_entropy(x, weight, target.to(labels), **options)
        assert (got.double() - losses).abs().max() <= 1e-5 * losses.abs().max()
        loss = (got * by_loss).sum() + ((aux.lse * by_lse).sum() if with_lse else 0.0)
        for gradient, right in zip(torch.autograd.grad(loss, (x, weight)), expected, strict=True):
            assert (gradient.double() - right).norm() <= 1e-4 * right.norm()
    target[5] = CLASSES
    losses = osm.linear_cross_entropy(x, weight, target.to(labels), **options)
    assert losses.isnan().nonzero().tolist() == [[5]]


@pytest.mark.parametrize("labels", [torch.int64, torch.int32])
@pytest.mark.parametrize("hidden", [8, 64, 2056])
def test_ignored_rows_are_zeros_and_others_themselves(labels, hidden):
    x = torch.randn(203, hidden, device=DEVICE).to(torch.bfloat16)
    target = torch.arange(406, device=DEVICE, dtype=labels)[::2]
    ignored = target % 3 == 0
    target = torch.where(ignored, -100, target).to(labels).repeat_interleave(2)[::2]
    x[ignored] = torch.nan
    for room in (None, torch.full_like(x, torch.nan)):
        got = cuda_ignored.without_ignored(x, target, -100, room)
        assert cuda_ignored.fits(x, room)
        assert torch.equal(got, torch.where(ignored[:, None], 0.0, x.double()).to(x.dtype))
        assert room is None or got is room

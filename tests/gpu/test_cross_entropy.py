"""Cross-entropy on the GPU against float64: values, gradients, options, and the same bits every run."""

from __future__ import annotations

import pytest
import torch
from cases import DEVICE, error, random_rows
from cross_entropy_cases import CASES, OPTIONS, WITH_AUX, WITH_PROBABILITIES, check, choices, gpu

from online_softmax.ops.cross_entropy.options import Options


@pytest.mark.parametrize(("dtype", "classes"), CASES)
def test_values_and_gradients(dtype, classes):
    logits = random_rows(9, classes, dtype)
    target = torch.randint(0, classes, (9,), device=DEVICE)
    target[4] = -100
    weight = torch.rand(classes, device=DEVICE, dtype=torch.float64 if dtype == torch.float64 else torch.float32) + 0.1
    probabilities = torch.softmax(torch.randn(9, classes, device=DEVICE), 1)
    for options, weighted in choices(dtype):
        check(logits, target, weight if weighted else None, options, aux=classes in WITH_AUX)
        if classes in WITH_PROBABILITIES:
            check(logits, probabilities, weight if weighted else None, options)
    check(random_rows(9, classes, dtype, offset=1), target.int(), None, OPTIONS[0])


@pytest.mark.parametrize("classes", [10, 5000, 50257])
def test_probabilities_that_all_rows_share(classes):
    row = torch.softmax(torch.randn(1, classes, device=DEVICE), 1)
    weight = torch.rand(classes, device=DEVICE) + 0.1
    for options, weighted in choices(torch.bfloat16):
        logits = random_rows(9, classes, torch.bfloat16)
        check(logits, row.expand(9, classes), weight if weighted else None, options)


@pytest.mark.parametrize(("rows", "classes"), [(9, 5000), (9, 5001), (9, 50257), (16385, 2000)])
def test_class_weights_anywhere_in_memory(rows, classes):
    logits = random_rows(rows, classes, torch.bfloat16)
    target = torch.randint(0, classes, (rows,), device=DEVICE)
    weight = torch.rand(classes + 1, device=DEVICE) + 0.1
    weight[::5] = 0
    for options in (Options(label_smoothing=0.1), Options(label_smoothing=0.1, softcap=5.0)):
        for off in (0, 1):
            check(logits, target, weight[off : off + classes], options)


def test_divisors():
    x = random_rows(40000, 12, torch.float32)  # more rows than one block sums
    target = torch.randint(0, 12, (40000,), device=DEVICE)
    target[::3] = -100
    weight = torch.rand(12, device=DEVICE)
    for options in (Options(), Options(z_loss=0.1), Options(reduction="sum")):
        check(x, target, weight, options)
    result = gpu.forward(x, target, weight, torch.tensor(10.0, device=DEVICE), Options())
    total = gpu.forward(x, target, weight, None, Options(reduction="sum"))
    assert error(result.loss, total.loss.double() / 10) <= 2
    assert error(gpu.forward(x, target, weight, 10, Options()).loss, total.loss.double() / 10) <= 2
    nothing = gpu.forward(x, torch.full_like(target, -100), None, None, Options(), gradient=True)
    assert nothing.loss.isnan()
    assert (nothing.gradient == 0).all()
    assert gpu.forward(x[:0], target[:0], None, None, Options()).loss.isnan()


@pytest.mark.parametrize(
    ("rows", "classes"), [(1, 12), (4096, 12), (4097, 12), (4097, 4096), (16384, 4096), (16385, 4096), (300, 300001)]
)
@pytest.mark.parametrize("options", [Options(), Options(z_loss=0.1), Options(reduction="sum", z_loss=0.1)])
def test_the_loss_of_few_and_many_rows(rows, classes, options):
    """Summed by one block, or by several."""
    x = random_rows(rows, classes, torch.bfloat16)
    target = torch.randint(0, classes, (rows,), device=DEVICE)
    target[1::3] = -100
    every = gpu.forward(x, target, None, None, Options(reduction="none"))
    kept = target != -100
    z = options.z_loss * (every.lse.double() ** 2)[kept].sum()
    right = every.loss.double()[kept].sum() + z
    if options.reduction == "mean":
        right = right / kept.sum()
    for _ in range(3):  # from the second on by what the first has kept
        assert error(gpu.forward(x, target, None, None, options).loss, right) <= 1
        assert error(gpu.forward(x, target, None, None, options, gradient=True).loss, right) <= 1


def test_in_place_and_rescale():
    for classes in (100, 50257, 1000003):
        x = random_rows(5, classes, torch.bfloat16)
        target = torch.randint(0, classes, (5,), device=DEVICE)
        fresh = gpu.forward(x, target, None, None, Options(), gradient=True)
        spare = x.clone()
        in_place = gpu.forward(spare, target, None, None, Options(), gradient=spare)
        assert in_place.gradient is spare
        assert torch.equal(spare, fresh.gradient)
        assert torch.equal(in_place.loss, fresh.loss)
        before = spare.clone()
        assert torch.equal(gpu.rescale(spare, torch.ones((), device=DEVICE)), before)
        assert torch.equal(gpu.rescale(spare, torch.full((), 0.5, device=DEVICE)), before * 0.5)
        given = (target, None, fresh.lse, fresh.lse_low, fresh.divisors, Options(), torch.ones((), device=DEVICE), None)
        apart = gpu.backward(x, *given)
        assert error(apart, fresh.gradient.double(), before.abs().amax().double() * 1e-3) <= 1.01
        assert gpu.backward(x, *given, x) is x
        assert torch.equal(x, apart)


def test_the_same_bits_every_run_and_in_any_batch():
    for classes in (100, 5000, 50257, 262144, 1000003):
        x = random_rows(24, classes, torch.bfloat16)
        target = torch.randint(0, classes, (24,), device=DEVICE)
        options = Options(reduction="sum", label_smoothing=0.1)
        first, second = (gpu.forward(x, target, None, None, options, gradient=True) for _ in range(2))
        assert torch.equal(first.gradient, second.gradient)
        assert torch.equal(first.loss, second.loss)
        alone = gpu.forward(x[16:17].clone(), target[16:17], None, None, options, gradient=True)
        assert torch.equal(alone.gradient[0], first.gradient[16])
        assert torch.equal(alone.lse[0], first.lse[16])

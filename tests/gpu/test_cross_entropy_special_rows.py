"""Cross-entropy on the GPU: rows with NaN or infinities, ignored ones, classes without mass, logits far from zero."""

from __future__ import annotations

import pytest
import torch
from cases import DEVICE, error, poisoned, random_rows
from cross_entropy_cases import OPTIONS, gpu

from online_softmax.ops.cross_entropy.options import Options


@pytest.mark.parametrize("classes", [7, 1000, 40000, 1000003])
def test_special_rows(classes):
    x = random_rows(8, classes, torch.float32)
    target = torch.full((8,), 2, device=DEVICE)
    x[1] = -torch.inf
    x[2, 5] = torch.inf
    x[3, 4] = torch.nan
    x[4, 2] = -torch.inf  # the target itself
    x[5, 3] = -torch.inf  # another class
    target[6], x[6, 0], x[6, 1] = -100, torch.nan, torch.inf
    target[7] = classes  # no class
    options = Options(reduction="none")
    result = gpu.forward(x, target, None, None, options, aux=True)
    ones = torch.ones(8, device=DEVICE)
    gradient = gpu.backward(
        x, target, None, result.lse, result.lse_low, result.divisors, options, ones, None, poisoned(x.shape, x.dtype)
    )
    loss = result.loss
    assert loss[[1, 2, 3, 7]].isnan().all()
    assert loss[4] == torch.inf
    assert loss[6] == 0
    assert loss[[0, 5]].isfinite().all()
    assert result.lse[1] == -torch.inf
    assert result.lse[2] == torch.inf
    assert result.lse[[3, 6]].isnan().all()
    assert result.lse[7].isfinite()
    assert gradient[[1, 2, 3, 7]].isnan().all()
    assert (gradient[6] == 0).all()
    assert gradient[5, 3] == 0
    assert gradient[4, 2] == -1
    assert result.predicted[3] == 4
    assert result.predicted[1] == 0
    assert result.predicted[2] == 5
    assert result.predicted[6] == 0


@pytest.mark.parametrize("classes", [100, 5000, 1000003])
def test_an_ignored_row_has_gradient_zero_with_every_option(classes):
    x = random_rows(3, classes, torch.float32)
    x[1] = torch.nan
    target = torch.tensor([1, -100, 2], device=DEVICE)
    weight = torch.rand(classes, device=DEVICE) + 0.1
    options = OPTIONS[3]._replace(reduction="sum")
    result = gpu.forward(x, target, weight, None, options, gradient=poisoned(x.shape, x.dtype))
    given = (result.lse, result.lse_low, result.divisors, options, torch.ones((), device=DEVICE))
    for grad_lse in (None, torch.zeros(3, device=DEVICE)):
        late = gpu.backward(x, target, weight, *given, grad_lse, poisoned(x.shape, x.dtype))
        for gradient in (result.gradient, late):
            assert (gradient[1] == 0).all()
            assert gradient[[0, 2]].isfinite().all()


def test_a_class_without_mass_adds_nothing():
    x = random_rows(3, 50, torch.float32)
    x[:, 7] = -torch.inf
    weight = torch.ones(50, device=DEVICE)
    weight[7] = 0
    target = torch.tensor([1, 2, 7], device=DEVICE)
    smooth = Options(reduction="none", label_smoothing=0.1)
    assert gpu.forward(x, target, weight, None, smooth).loss.isfinite().all()
    assert gpu.forward(x, target, weight, None, Options(reduction="none")).loss[2] == 0
    q = torch.softmax(torch.randn(3, 50, device=DEVICE), 1)
    q[:, 7] = 0
    assert gpu.forward(x, q, None, None, Options(reduction="none")).loss.isfinite().all()
    assert gpu.forward(x, target[:2], None, None, smooth._replace(reduction="sum")).loss == torch.inf


@pytest.mark.parametrize("classes", [100, 5000, 50257, 1000003])
@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[3]])
def test_a_mean_over_rows_that_weigh_nothing_is_nan_and_ignored_rows_stay_zero(options, classes):
    x, weight = random_rows(3, classes, torch.float32), torch.ones(classes, device=DEVICE)
    weight[1] = 0
    for labels, kept in (([1, -100, 1], [0, 2]), ([-100, -100, -100], [])):
        target = torch.tensor(labels, device=DEVICE)
        result = gpu.forward(x, target, weight, None, options, gradient=poisoned(x.shape, x.dtype))
        given = (result.lse, result.lse_low, result.divisors, options, torch.ones((), device=DEVICE), None)
        late = gpu.backward(x, target, weight, *given, poisoned(x.shape, x.dtype))
        assert result.loss.isnan()
        for gradient in (result.gradient, late):
            assert gradient[kept].isnan().all()
            assert (gradient[target == -100] == 0).all()


@pytest.mark.parametrize("classes", [5, 1000, 5000, 40000, 1000003])
def test_mass_on_parts_of_a_row_that_are_minus_infinity(classes):
    x = random_rows(3, classes, torch.float32)
    x[1:, classes // 2 :] = -torch.inf  # whole warps, blocks and pieces of it
    q = torch.softmax(torch.randn(3, classes, device=DEVICE), 1)
    q[2, classes // 2 :] = 0
    loss = gpu.forward(x, q, None, None, Options(reduction="none")).loss
    assert loss[[0, 2]].isfinite().all()
    assert loss[1] == torch.inf
    index = torch.zeros(3, dtype=torch.int64, device=DEVICE)
    smooth = gpu.forward(x, index, None, None, Options(reduction="none", label_smoothing=0.1)).loss
    assert smooth[0].isfinite()
    assert (smooth[1:] == torch.inf).all()


@pytest.mark.parametrize("classes", [5, 1000, 5000, 40000, 1000003])
def test_losses_far_from_zero_keep_their_digits(classes):
    # Of equal logits every class is log C away, however large they are: lse - x, with lse rounded, is not.
    q = torch.softmax(torch.randn(3, classes, device=DEVICE), 1)
    weight = torch.rand(classes, device=DEVICE) + 0.5
    index = torch.tensor([0, classes // 2, classes - 1], device=DEVICE)
    plain = Options(reduction="none")
    smooth = plain._replace(label_smoothing=0.1)
    log_classes = torch.tensor(float(classes), dtype=torch.float64, device=DEVICE).log()
    for target, weights, options in (
        (q, None, plain),
        (q, weight, smooth),
        (index, None, plain),
        (index, None, smooth),
        (index, weight, smooth._replace(softcap=1e30)),
    ):
        w = torch.ones(classes, dtype=torch.float64, device=DEVICE) if weights is None else weights.double()
        hot = q.double() if target is q else torch.nn.functional.one_hot(index, classes).double()
        mass = w * ((1 - options.label_smoothing) * hot + options.label_smoothing / classes)
        for height in (1e4, 1e8, -1e8, 1e20, -1e36):
            x = torch.full((3, classes), height, device=DEVICE)
            loss = gpu.forward(x, target, weights, None, options).loss
            assert error(loss, mass.sum(1) * log_classes) <= 20, (height, options, weights is None)
    x = random_rows(3, classes, torch.float32) + 1e5  # on a grid of 1/128
    truth = (q.double() * (x.double().logsumexp(1, keepdim=True) - x.double())).sum(1)
    assert error(gpu.forward(x, q, None, None, plain).loss, truth) <= 40

"""The gradient of cross-entropy on the GPU from a log-sum-exp that is given, of longer rows than it sees."""

from __future__ import annotations

import pytest
import torch
from cases import DEVICE, DTYPES, EPS, error, poisoned, random_rows
from cross_entropy_cases import WITH_PROBABILITIES, choices, gpu

from online_softmax.ops.cross_entropy.options import Options


def capped_rows(x, options):
    """Logits in float64 after scale and softcap, and the slope of that."""
    u = x.double() * options.scale
    if options.softcap is None:
        return u, torch.full_like(u, options.scale)
    t = torch.tanh(u / options.softcap)
    return options.softcap * t, options.scale * (1 - t * t)


def gradient_of_part(x, target, weight, lse, options, grad_loss, grad_lse):
    """By the formula in float64, with a log-sum-exp that need not be the rows' own; and the size of its terms."""
    u, slope = capped_rows(x, options)
    classes = x.shape[1]
    kept = torch.ones_like(lse, dtype=torch.bool)
    q = target.double()
    if not target.is_floating_point():
        kept = target != options.ignore_index
        q = torch.nn.functional.one_hot(target.masked_fill(~kept, 0).long(), classes).double()
    mass = (1 - options.label_smoothing) * q + options.label_smoothing / classes
    mass = mass if weight is None else mass * weight.double()
    incoming = torch.where(kept, grad_loss.double(), 0.0)
    pull = incoming * (mass.sum(1) + 2 * options.z_loss * lse) + grad_lse.double()
    of_probability, of_mass = (u - lse[:, None]).exp() * pull[:, None], incoming[:, None] * mass
    return (of_probability - of_mass) * slope, (of_probability.abs() + of_mass.abs()) * options.scale


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("classes", [3, 100, 5000, 50257])
def test_backward_of_a_part_of_longer_rows(dtype, classes):
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    whole = random_rows(9, 3 * classes, dtype)
    target = torch.randint(0, classes, (9,), device=DEVICE)
    target[4] = -100
    probabilities = torch.softmax(torch.randn(9, classes, device=DEVICE), 1).to(compute)
    weight = torch.rand(classes, device=DEVICE, dtype=compute) + 0.1
    divisors = torch.ones(2, device=DEVICE, dtype=compute)
    grad_loss, grad_lse = (torch.randn(9, device=DEVICE).to(compute) for _ in range(2))
    bound = 0.6 if EPS[dtype] > 1e-4 else 200
    for options, weighted in choices(dtype):
        lse = capped_rows(whole, options)[0].logsumexp(1)
        high = lse.to(compute)
        given = (high, (lse - high).to(compute), divisors, options._replace(reduction="none"), grad_loss, grad_lse)
        of_class = weight if weighted else None
        targets = [target]
        if classes in WITH_PROBABILITIES:
            targets += [probabilities, probabilities[:1].expand(9, classes)]
        for which in targets:
            for first in (0, classes):  # the second is as aligned as the number of classes is
                x = whole[:, first : first + classes]
                truth, size = gradient_of_part(x, which, of_class, lse, options, grad_loss, grad_lse)
                got = gpu.backward(x, which, of_class, *given, poisoned(x.shape, dtype))
                assert error(got, truth, size) <= bound, (options, weighted, which.dtype, which.stride(), first)


def test_backward_takes_what_rounding_took_from_lse():
    whole = random_rows(9, 2000, torch.float32) + 2.0**20
    lse = whole.double().logsumexp(1)
    high = lse.float()
    low = (lse - high).float()
    assert low.abs().max() > 0.01
    x, target, ones = whole[:, :1000], torch.randint(0, 1000, (9,), device=DEVICE), torch.ones(9, device=DEVICE)
    options = Options(reduction="none")
    got = gpu.backward(x, target, None, high, low, ones[:2], options, ones, None)
    truth, size = gradient_of_part(x, target, None, lse, options, ones, torch.zeros_like(ones))
    assert error(got, truth, size) <= 200

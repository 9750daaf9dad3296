"""Classes, options and targets by regime, cross-entropy in float64, and the comparison of everything with it."""

from __future__ import annotations

import pytest
import torch
from cases import DEVICE, DTYPES, EPS, error, poisoned

from online_softmax.ops.cross_entropy.options import Options

gpu = pytest.importorskip("online_softmax.ops.cross_entropy.cuda") if torch.cuda.is_available() else None
CLASSES = (3, 10, 100, 1000, 1025, 5000, 16384, 32000, 50257, 151936, 262144, 1000003)
OPTIONS = (
    Options(),
    Options(reduction="sum", label_smoothing=0.1),
    Options(scale=0.7, softcap=5.0),
    Options(label_smoothing=0.2, z_loss=1e-2, scale=1.3, softcap=8.0),
)
WITH_AUX = (100, 5000, 50257, 1000003)
WITH_PROBABILITIES = (10, 5000, 50257, 1000003)
CASES = [
    (dtype, classes)
    for dtype in DTYPES
    for classes in (CLASSES if dtype in DTYPES[1:3] else (3, 100, 5000, 50257))  # kernels take time to compile
]


def choices(dtype: torch.dtype) -> list[tuple[Options, bool]]:
    """Options, and whether classes have weights."""
    if dtype not in DTYPES[1:3]:
        return [(OPTIONS[0], False), (OPTIONS[3], True)]
    return [(OPTIONS[0], False), (OPTIONS[0], True), (OPTIONS[1], True), (OPTIONS[2], False), (OPTIONS[3], True)]


def truth_of(logits, target, weight, options, grad_loss=None, grad_lse=None):
    """(loss, lse, gradient, capped logits, |terms| that the gradient is the difference of) in float64, by autograd."""
    x = logits.double().clone().requires_grad_(True)
    u = x * options.scale
    if options.softcap is not None:
        u = options.softcap * torch.tanh(u / options.softcap)
    lse = u.logsumexp(1)
    classes = u.shape[1]
    kept = torch.ones_like(lse, dtype=torch.bool) if target.is_floating_point() else target != options.ignore_index
    if target.is_floating_point():
        q = target.double()
    else:
        q = torch.nn.functional.one_hot(target.masked_fill(~kept, 0).long(), classes).double()
    q = (1 - options.label_smoothing) * q + options.label_smoothing / classes
    w = torch.ones(classes, device=u.device, dtype=torch.float64) if weight is None else weight.double()
    mass = w * q
    ce = torch.where(mass == 0, 0.0, mass * (lse[:, None] - u)).sum(1).masked_fill(~kept, 0)
    z = (options.z_loss * lse**2).masked_fill(~kept, 0)
    of_class = of_z = 1.0
    if options.reduction == "none":
        loss = ce + z
    else:
        if options.reduction == "mean":
            of_z = float(kept.sum())
            of_class = of_z if target.is_floating_point() else float(w[target[kept].long()].sum())
        loss = ce.sum() / of_class + z.sum() / of_z
    total = (loss * (1.0 if grad_loss is None else grad_loss.double())).sum()
    if grad_lse is not None:
        total = total + (lse * grad_lse.double()).sum()
    gradient, slope = (torch.autograd.grad(y, x, retain_graph=True)[0] for y in (total.sum(), u.sum()))
    by_loss = torch.ones_like(lse) if grad_loss is None else grad_loss.double()
    of_class, of_z = (by_loss.masked_fill(~kept, 0) / divisor for divisor in (of_class, of_z))
    into_lse = (mass.sum(1) * of_class).abs() + (2 * options.z_loss * lse * of_z).abs()
    if grad_lse is not None:
        into_lse = into_lse + grad_lse.double().abs()
    terms = ((mass * of_class[:, None]).abs() + u.softmax(1) * into_lse[:, None]) * slope.abs()
    return loss.detach(), lse.detach(), gradient, u.detach(), terms.detach()


def check(logits, target, weight, options, aux=False):
    dtype = logits.dtype
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    name = (tuple(logits.shape), dtype, options, weight is not None, target.dtype)
    loss, lse, gradient, u, terms = truth_of(logits, target, weight, options)
    result = gpu.forward(logits, target, weight, None, options, aux=aux, gradient=poisoned(logits.shape, dtype))
    top = u.abs().amax()
    assert error(result.loss, loss, top) <= 12, ("loss", *name)
    assert error(result.lse, lse, top) <= 12, ("lse", *name)
    assert_gradient(result.gradient, gradient, terms, ("gradient", *name))
    if aux:
        p = u.softmax(1)
        assert torch.equal(result.predicted, logits.argmax(1)), ("predicted", *name)
        assert error(result.entropy, -(p * u.log_softmax(1)).sum(1), 1.0) <= 60, ("entropy", *name)
        assert (
            error(
                result.z_loss,
                options.z_loss * lse**2 * (1 if target.is_floating_point() else target != options.ignore_index),
                1e-3,
            )
            <= 40
        )
    each = options._replace(reduction="none")
    rows = logits.shape[0]
    grad_loss, grad_lse = torch.randn(rows, device=DEVICE).to(compute), torch.randn(rows, device=DEVICE).to(compute)
    losses, _, gradient, _, terms = truth_of(logits, target, weight, each, grad_loss, grad_lse)
    forward = gpu.forward(logits, target, weight, None, each)
    assert error(forward.loss, losses, top) <= 12, ("losses", *name)
    got = gpu.backward(
        logits,
        target,
        weight,
        forward.lse,
        forward.lse_low,
        forward.divisors,
        each,
        grad_loss,
        grad_lse,
        poisoned(logits.shape, dtype),
    )
    assert_gradient(got, gradient, terms, ("backward", *name))


def assert_gradient(got, truth, terms, name):
    """A class's gradient is a difference, and what is left of it has the errors of its terms: the probability among
    them is exp of a rounded difference, |x - m| / 2 units off, as everyone's.  16 bits are rounded once besides."""
    if EPS[got.dtype] > 1e-4:
        assert error(got, truth, truth.abs().amax() * 1e-3) <= 0.6, name
    else:
        assert error(got, truth, terms) <= 40, name

"""Cross-entropy on the GPU against float64: values, gradients, special rows, options."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from cases import DEVICE, DTYPES, EPS, error, poisoned, random_rows

from online_softmax.ops.cross_entropy.options import Options
from online_softmax.ops.cross_entropy.switches import Switches

if torch.cuda.is_available():
    from online_softmax._cuda import launch
    from online_softmax.ops.cross_entropy import kernels

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
    """(loss, lse, gradient, capped logits) in float64, by autograd through the definition."""
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
    if options.reduction == "none":
        loss = ce + z
    else:
        of_class = of_z = 1.0
        if options.reduction == "mean":
            of_z = float(kept.sum())
            of_class = of_z if target.is_floating_point() else float(w[target[kept].long()].sum())
        loss = ce.sum() / of_class + z.sum() / of_z
    total = (loss * (1.0 if grad_loss is None else grad_loss.double())).sum()
    if grad_lse is not None:
        total = total + (lse * grad_lse.double()).sum()
    total.backward()
    return loss.detach(), lse.detach(), x.grad, u.detach()


def check(logits, target, weight, options, aux=False):
    dtype = logits.dtype
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    name = (tuple(logits.shape), dtype, options, weight is not None, target.dtype)
    loss, lse, gradient, u = truth_of(logits, target, weight, options)
    result = gpu.forward(logits, target, weight, None, options, aux=aux, gradient=poisoned(logits.shape, dtype))
    top = u.abs().amax()
    assert error(result.loss, loss, top) <= 12, ("loss", *name)
    assert error(result.lse, lse, top) <= 12, ("lse", *name)
    # A class's gradient is the difference of two numbers of this size.
    size = gradient.abs().amax() * 1e-3
    bound = 0.6 if EPS[dtype] > 1e-4 else 300
    assert error(result.gradient, gradient, size) <= bound, ("gradient", *name)
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
    losses, _, gradient, _ = truth_of(logits, target, weight, each, grad_loss, grad_lse)
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
    size = gradient.abs().amax() * 1e-3
    assert error(got, gradient, size) <= bound, ("backward", *name)


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


@pytest.mark.parametrize("classes", [16385, 40000, 65537])
def test_blocks_whose_words_take_48_kib(classes):
    # 48 KiB are granted unasked; they must hold the words and the kernel's own variables together.
    x = random_rows(3, classes, torch.float32)
    check(x, torch.randint(0, classes, (3,), device=DEVICE), None, OPTIONS[0])


@pytest.mark.parametrize("largest", [8, 2, 1, 0])
def test_clusters_that_a_device_does_not_grant_are_not_launched(monkeypatch, largest):
    real = launch.load

    def load(device, source, threads, cluster=1, shared=0):
        file_keeps_rows = source.file.endswith("/cuda.cu")
        refused = file_keeps_rows and cluster > largest
        return SimpleNamespace(resident=0) if refused else real(device, source, threads, cluster, shared)

    monkeypatch.setattr(launch, "load", load)
    kernels._kernels.cache_clear()
    try:
        x = random_rows(3, 40000, torch.float32)
        check(x, torch.randint(0, 40000, (3,), device=DEVICE), None, OPTIONS[0])
        _, shape, split = kernels._kernels(0, x.dtype, 10000, Switches(torch.int64, *[False] * 6, True))
        assert split or shape.cluster <= largest
        assert split == (largest < 4)  # four blocks hold this row, and no fewer
    finally:
        kernels._kernels.cache_clear()


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


@pytest.mark.parametrize("classes", [10, 5000, 50257])
def test_probabilities_that_all_rows_share(classes):
    row = torch.softmax(torch.randn(1, classes, device=DEVICE), 1)
    weight = torch.rand(classes, device=DEVICE) + 0.1
    for options, weighted in choices(torch.bfloat16):
        logits = random_rows(9, classes, torch.bfloat16)
        check(logits, row.expand(9, classes), weight if weighted else None, options)


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

"""The native kernels of cross-entropy and its gradient, against the formula in float64."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from online_softmax import _cpu
from online_softmax._cpu import _native
from online_softmax.ops.cross_entropy import cpu
from online_softmax.ops.cross_entropy.options import Options

INSTRUCTION_SETS = _cpu.instruction_sets()


@pytest.fixture(params=INSTRUCTION_SETS)
def instruction_set(request):
    _cpu.use_instruction_set(request.param)
    yield request.param
    _cpu.use_instruction_set(INSTRUCTION_SETS[0])


def case(rows, classes, dtype, seed=0, ignored=True):
    rng = np.random.default_rng(seed)
    x = (3 * rng.standard_normal((rows, classes))).astype(dtype)
    target = rng.integers(0, classes, rows)
    if ignored:
        target[rows // 2] = -100
    return x, target


def expected(x, target, weight, num_items, o, grad_loss=1.0, grad_lse=None):
    """(loss, lse, gradient, entropy, z) by the formula, in float64."""
    u = o.scale * np.asarray(x, np.float64)
    z = u if o.softcap is None else o.softcap * np.tanh(u / o.softcap)
    slope = o.scale * (1.0 if o.softcap is None else 1 - (z / o.softcap) ** 2)
    rows, classes = z.shape
    m = z.max(1, keepdims=True)
    lse = (m + np.log(np.exp(z - m).sum(1, keepdims=True)))[:, 0]
    p = np.exp(z - lse[:, None])
    w = np.ones(classes) if weight is None else np.asarray(weight, np.float64)
    if target.ndim == 1:
        kept = target != o.ignore_index
        q = np.eye(classes)[np.where(kept, target, 0)]
        class_weights = np.where(kept, w[np.where(kept, target, 0)], 0).sum()
    else:
        kept, q, class_weights = np.ones(rows, bool), np.asarray(target, np.float64), float(rows)
    mass = w * ((1 - o.label_smoothing) * q + o.label_smoothing / classes) * kept[:, None]
    with np.errstate(invalid="ignore"):
        ce = np.where(mass == 0, 0, mass * (lse[:, None] - z)).sum(1)
    zl = np.where(kept, o.z_loss * lse**2, 0)
    d, k = (class_weights, kept.sum()) if o.reduction == "mean" else (1.0, 1.0)
    if num_items is not None:
        d = k = num_items
    loss = ce + zl if o.reduction == "none" else ce.sum() / d + zl.sum() / k
    grad_loss = np.broadcast_to(grad_loss, rows)
    pull = grad_loss / d
    total = pull * mass.sum(1) + np.where(kept, 2 * o.z_loss * lse * grad_loss / k, 0)
    total = total + (0 if grad_lse is None else grad_lse)
    gradient = (p * total[:, None] - pull[:, None] * mass) * slope
    with np.errstate(invalid="ignore", divide="ignore"):
        entropy = -np.where(p == 0, 0, p * np.log(p)).sum(1)
    return loss, lse, gradient, entropy, zl


def close(result, truth, dtype, factor=100):
    eps = float(np.finfo(dtype).eps)
    scale = max(1e-30, float(np.nanmax(np.abs(truth), initial=0.0)))
    return np.allclose(
        np.asarray(result, np.float64), truth, rtol=factor * eps, atol=factor * eps * scale, equal_nan=True
    )


OPTIONS = [
    Options(),
    Options(reduction="sum"),
    Options(reduction="none"),
    Options(label_smoothing=0.1),
    Options(z_loss=1e-2),
    Options(scale=0.5),
    Options(scale=-1.5),
    Options(softcap=4.0),
    Options(ignore_index=3, label_smoothing=0.2, scale=0.7, softcap=5.0, z_loss=1e-3),
    Options(reduction="none", label_smoothing=0.2, scale=1.3, softcap=5.0, z_loss=1e-3),
]
DTYPES = [np.float32, np.float64]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
@pytest.mark.parametrize("classes", [2, 33, 1030, 3000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_option(instruction_set, dtype, classes, options, probabilities, weighted):
    x, target = case(7, classes, dtype)
    target[target == -100] = options.ignore_index
    rng = np.random.default_rng(1)
    weight = rng.random(classes).astype(dtype) if weighted else None
    if weighted:
        weight[0] = 0
    if probabilities:
        target = rng.dirichlet(np.ones(classes), 7).astype(dtype)
    num_items = 11 if options.reduction == "mean" and classes == 33 else None
    loss, lse, gradient, entropy, z = expected(x, target, weight, num_items, options)
    want_gradient = None if options.reduction == "none" else np.full_like(x, np.nan)
    f = cpu.forward(x, target, weight, num_items, options, aux=True, gradient=want_gradient)
    assert close(f.loss, loss, dtype)
    assert close(f.lse, lse, dtype)
    assert close(f.entropy, entropy, dtype, 1000)
    assert close(f.z_loss, z, dtype)
    if options.softcap is None:
        assert np.array_equal(f.predicted, (options.scale * x).argmax(1))
    if want_gradient is not None:
        assert f.gradient is want_gradient
        assert close(f.gradient, gradient, dtype, 300)

    grads = rng.standard_normal(7).astype(dtype) if options.reduction == "none" else dtype(-1.7)
    grad_lse = rng.standard_normal(7).astype(dtype)
    for g in (None, grad_lse):
        _, _, gradient, _, _ = expected(x, target, weight, num_items, options, grads, g)
        out = np.full_like(x, np.nan)
        arguments = (f.lse, f.lse_low, f.divisors, options, np.asarray(grads), g, out)
        assert cpu.backward(x, target, weight, *arguments) is out
        assert close(out, gradient, dtype, 300)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "target_dtype", [torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_every_dtype_of_logits_and_targets(instruction_set, dtype, target_dtype):
    x, target = (torch.from_numpy(a) for a in case(20, 1500, np.float32))
    x = x.to(dtype)
    if target_dtype.is_floating_point:
        target = torch.softmax(torch.randn(20, 1500), 1)
    target = target.to(target_dtype)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    f = cpu.forward(x, target, None, None, Options(), gradient=True)
    widened = target.to(wide) if target_dtype in (torch.float16, torch.bfloat16, torch.float32) else target
    g = cpu.forward(x.to(wide), widened, None, None, Options(), gradient=True)
    assert f.loss.dtype is wide
    assert f.gradient.dtype is dtype
    if not (target_dtype is torch.float64 and wide is torch.float32):
        assert torch.equal(f.loss, g.loss)
        assert torch.equal(f.gradient, g.gradient.to(dtype))
    reference = torch.nn.functional.cross_entropy(
        x.double(), target.long() if not target.is_floating_point() else target.double()
    )
    assert torch.allclose(f.loss.double(), reference, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("options", [Options(), Options(softcap=3.0, scale=2.0, label_smoothing=0.1, z_loss=0.1)])
def test_the_gradient_may_take_the_memory_of_the_logits(instruction_set, dtype, options):
    x, target = (torch.from_numpy(a) for a in case(20, 3000, np.float32))
    x = x.to(dtype)
    f = cpu.forward(x, target, None, None, options, aux=True, gradient=True)
    y = x.clone()
    g = cpu.forward(y, target, None, None, options, aux=True, gradient=y)
    assert g.gradient is y
    assert all(torch.equal(a, b) for a, b in zip(f, g, strict=True))
    y = x.clone()
    one = torch.ones((), dtype=f.loss.dtype)
    assert cpu.backward(y, target, None, f.lse, f.lse_low, f.divisors, options, one, None, y) is y
    assert torch.equal(y, f.gradient)  # both ways to a gradient give the same bits


def test_rows_far_from_zero_keep_their_probabilities(instruction_set):
    x, target = case(5, 300, np.float32)
    far = (x + np.float32(2**20)).astype(np.float32)
    f = cpu.forward(far, target, None, None, Options(reduction="sum"), gradient=True)
    loss, _, gradient, _, _ = expected(far.astype(np.float64) - 2**20, target, None, None, Options(reduction="sum"))
    assert abs(f.loss - loss) < 1e-4
    assert np.allclose(f.gradient, gradient, atol=1e-6)
    again = cpu.backward(
        far, target, None, f.lse, f.lse_low, f.divisors, Options(reduction="sum"), np.float32(1)[...], None
    )
    assert np.allclose(again, gradient, atol=1e-6)


# ---- special rows -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [Options(reduction="none"), Options(reduction="none", label_smoothing=0.1)])
@pytest.mark.parametrize("row", [[0, np.nan, 1], [np.inf, 0, 0], [-np.inf] * 3, [np.inf, np.nan, 0]])
def test_a_row_without_probabilities(instruction_set, row, options):
    x = np.array([[0, 1, 2], row, [2, 1, 0]], np.float32)
    f = cpu.forward(x, np.array([0, 1, 2]), None, None, options, aux=True)
    assert np.isnan(f.loss[1])
    assert np.isfinite(f.loss[[0, 2]]).all()
    assert f.lse_low[1] == 0
    assert f.predicted[1] == np.argmax(row)
    ones = np.ones(3, np.float32)
    gradient = cpu.backward(x, np.array([0, 1, 2]), None, f.lse, f.lse_low, f.divisors, options, ones, None)
    assert np.isnan(gradient[1]).all()
    assert np.isfinite(gradient[[0, 2]]).all()
    with_zero_weight = cpu.forward(x, np.array([0, 1, 2]), np.array([1, 0, 1], np.float32), None, options)
    assert np.isnan(with_zero_weight.loss[1])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_ignored_row_is_exactly_zero_even_with_nan(instruction_set, dtype, smoothing):
    x, target = case(6, 1100, dtype)
    x[3] = np.nan
    assert target[3] == -100
    options = Options(label_smoothing=smoothing, z_loss=0.1)
    f = cpu.forward(x, target, None, None, options, gradient=True)
    assert np.isfinite(f.loss)
    assert np.isnan(f.lse[3])
    compute = f.lse.dtype.type
    zeros = cpu.backward(x, target, None, f.lse, f.lse_low, f.divisors, options, compute(1)[...], np.zeros(6, compute))
    for gradient in (f.gradient, zeros):
        assert (gradient[3] == 0).all()
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("target", [np.full(4, -100), np.array([1, 1, -100, 1])])
def test_mean_of_nothing_is_nan_with_a_gradient_of_zero(target):
    x, _ = case(4, 50, np.float32)
    weight = np.ones(50, np.float32)
    weight[1] = 0
    f = cpu.forward(x, target, weight, None, Options(), gradient=True)
    assert np.isnan(f.loss)
    assert (f.gradient == 0).all()


def test_a_class_without_mass_adds_exactly_zero_whatever_its_logit(instruction_set):
    x = np.array([[-np.inf, 0, 1.0]], np.float32)
    plain = cpu.forward(x, np.array([1]), None, None, Options(), gradient=True)
    assert np.isfinite(plain.loss)
    assert plain.gradient[0, 0] == 0
    assert cpu.forward(x, np.array([0]), None, None, Options()).loss == np.inf
    assert cpu.forward(x, np.array([1]), None, None, Options(label_smoothing=0.1)).loss == np.inf
    weight = np.array([0, 1, 1], np.float32)
    assert np.isfinite(cpu.forward(x, np.array([1]), weight, None, Options(label_smoothing=0.1)).loss)
    assert cpu.forward(x, np.array([0]), weight, None, Options(reduction="sum")).loss == 0
    probabilities = np.array([[0, 0.5, 0.5]], np.float32)
    assert np.isfinite(cpu.forward(x, probabilities, None, None, Options()).loss)


def test_a_target_outside_the_classes_reads_no_memory_and_gives_nan():
    x, _ = case(3, 10, np.float32)
    f = cpu.forward(x, np.array([0, 2**40, -5]), np.ones(10, np.float32), None, Options(reduction="none"), aux=True)
    assert np.array_equal(np.isnan(f.loss), [False, True, True])
    summed = cpu.forward(x, np.array([0, 2**40, -5]), None, None, Options(reduction="sum"), gradient=True)
    assert np.isnan(summed.gradient[1:]).all()
    assert np.isfinite(summed.gradient[0]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_loss_of_a_dominant_class_keeps_its_small_terms(instruction_set, dtype):
    x = np.full((2, 2000), -np.inf, dtype)
    x[:, 5], x[:, 1500] = 0, -40
    f = cpu.forward(x, np.array([5, 5]), None, None, Options())
    assert np.isclose(f.loss, 4.248354255291589e-18, rtol=1e-6, atol=0)


def test_no_rows_and_no_classes():
    empty = np.empty((0, 5), np.float32)
    none = np.empty(0, np.int64)
    assert cpu.forward(empty, none, None, None, Options(reduction="sum"), gradient=True).loss == 0
    assert np.isnan(cpu.forward(empty, none, None, None, Options(), gradient=True).loss)
    f = cpu.forward(
        np.empty((3, 0), np.float32), np.empty((3, 0), np.float32), None, None, Options(reduction="none"), gradient=True
    )
    assert np.array_equal(f.loss, [0, 0, 0])
    assert f.gradient.shape == (3, 0)
    assert np.isnan(cpu.forward(np.empty((3, 0), np.float32), np.empty((3, 0), np.float32), None, None, Options()).loss)


# ---- strides, and the same bits -----------------------------------------------------------------------------------
def test_any_strides_give_the_bits_of_contiguous_arrays(instruction_set):
    for dtype in (np.float16, np.float32, np.float64):
        base, target = case(40, 1100, dtype)
        padded = np.zeros((40, 1200), dtype)
        padded[:, :1100] = base
        spaced = np.repeat(base, 2, 1)[:, ::2]
        targets = np.repeat(target, 3)[::3]
        want = cpu.forward(base, target, None, None, Options(), aux=True, gradient=True)
        for x in (padded[:, :1100], np.asfortranarray(base), spaced, base[::-1].copy()[::-1]):
            out = np.full((40, 1100, 2), np.nan, dtype)[..., 1]
            f = cpu.forward(x, targets, None, None, Options(), aux=True, gradient=out)
            assert all(np.array_equal(a, b) for a, b in zip(f, want, strict=True))


@pytest.mark.parametrize(("rows", "classes"), [(300, 1000), (1, 300_000), (3, 300_000), (5, 40_000)])
@pytest.mark.parametrize("options", [Options(), Options(label_smoothing=0.1, softcap=5.0, z_loss=0.1)])
def test_bits_are_the_same_for_any_number_of_threads(instruction_set, rows, classes, options):
    x, target = case(rows, classes, np.float32, ignored=False)
    results = []
    for threads in (1, 2, 3, 8):
        _cpu.set_num_threads(threads)
        before = _native.shared_jobs()
        f = cpu.forward(x, target, None, None, options, aux=True, gradient=True)
        assert (_native.shared_jobs() > before) == (threads > 1)
        results.append(f)
    for f in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(f, results[0], strict=True))


def test_a_row_does_not_depend_on_the_others(instruction_set):
    x, target = case(40, 5001, np.float32, ignored=False)
    options = Options(reduction="none", label_smoothing=0.1)
    whole = cpu.forward(x, target, None, None, options, aux=True)
    for row, (index, parts) in itertools.product((0, 3, 39), enumerate(whole)):
        if parts is None or parts.shape != (40,):
            continue
        alone = cpu.forward(x[row : row + 1], target[row : row + 1], None, None, options, aux=True)
        assert np.array_equal(alone[index][0], parts[row])


def test_the_sum_over_many_rows_is_accurate():
    x = np.zeros((100_000, 3), np.float32)
    x[:, 0] = np.linspace(0, 1, 100_000)
    target = np.zeros(100_000, np.int64)
    rows = cpu.forward(x, target, None, None, Options(reduction="none")).loss
    loss = cpu.forward(x, target, None, None, Options(reduction="sum")).loss
    assert abs(loss / rows.astype(np.float64).sum() - 1) < 1e-7


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_rescale(dtype):
    x = torch.randn(300, 700).to(dtype)
    wide = torch.promote_types(dtype, torch.float32)
    y = x.clone()
    assert cpu.rescale(y, torch.tensor(0.3, dtype=wide)) is y
    assert torch.equal(y, (x.to(wide) * torch.tensor(0.3, dtype=wide)).to(dtype))
    y = x.clone()
    y[0, 0] = torch.nan  # which no arithmetic would leave in place unseen
    version = y._version
    assert torch.equal(cpu.rescale(y, torch.ones(())), y) is False  # NaN != NaN
    assert y._version == version


def test_arrays_off_their_alignment_are_copied():
    x, target = case(8, 50, np.float32)
    off = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
    off[...] = x
    t = np.zeros(target.nbytes + 1, np.uint8)[1:].view(np.int64)
    t[...] = target
    want = cpu.forward(x, target, None, None, Options(), gradient=True)
    out = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
    for logits, targets in ((off, target), (x, t), (off, t)):
        f = cpu.forward(logits, targets, None, None, Options(), gradient=out)
        assert f.gradient is out
        assert np.array_equal(out, want.gradient)
        assert np.array_equal(f.loss, want.loss)
        again = cpu.backward(
            logits, targets, None, f.lse, f.lse_low, f.divisors, Options(), np.float32(1)[...], None, out
        )
        assert np.array_equal(again, want.gradient)

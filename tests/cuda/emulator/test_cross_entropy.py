"""Cross-entropy and its gradient of every kind of row, by the kernels' own code on the CPU."""

from __future__ import annotations

from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.core")

from tests.arrays import same_bits  # noqa: E402
from tests.cuda.emulator.cases import BF16, F16, F32, F64, INF, NAN, frame_of, framed  # noqa: E402
from tests.tolerances import close, eps  # noqa: E402

from online_softmax.ops.cross_entropy.options import Options  # noqa: E402

IGNORED = -100
NONE = Options(reduction="none")
CAPPED = NONE._replace(scale=-0.7, softcap=5.0, z_loss=1e-2)
ALL = CAPPED._replace(label_smoothing=0.1)
SMOOTH = NONE._replace(label_smoothing=0.1)
# How a row is taken -> the largest cluster that is granted, the row's words, and what is launched then.
REGIMES = {
    "some lanes of a warp": (16, 6, lambda kernel: kernel.cluster == 1),
    "a warp": (16, 60, lambda kernel: kernel.cluster == 1),
    "a block": (16, 701, lambda kernel: kernel.cluster == 1 and kernel.threads > 128),
    "a cluster": (2, 5201, lambda kernel: kernel.cluster == 2),
    "a cluster of sixteen": (16, 36001, lambda kernel: kernel.cluster == 16),
    "pieces": (0, 5201, lambda kernel: kernel.cluster == 1 and "pieces" in kernel.source.entry),
}
CASES = [
    *(("some lanes of a warp", BF16, options) for options in (NONE, ALL)),
    ("some lanes of a warp", F32, SMOOTH),
    *(("a warp", F32, options) for options in (NONE, ALL)),
    *(("a block", dtype, options) for dtype in (BF16, F32) for options in (NONE, SMOOTH, CAPPED, ALL)),
    ("a block", F16, NONE),
    *(("a cluster", dtype, options) for dtype in (BF16, F32) for options in (NONE, ALL)),
    ("a cluster", BF16, SMOOTH),
    ("a cluster of sixteen", F32, NONE),
    ("pieces", F32, ALL),
    ("pieces", BF16, NONE),
]


class Rows(NamedTuple):
    """Logits, labels, and weights of classes or None."""

    logits: torch.Tensor
    target: torch.Tensor
    weight: torch.Tensor | None

    def some(self, rows):
        return self._replace(logits=self.logits[rows], target=self.target[rows])


def special_rows(length, dtype, weighted):
    """Row 0 to 4 are as any other; then a label at -inf and no label, ignored ones, rows without a loss."""
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(13, length, generator=generator).mul_(3).to(dtype)
    target = torch.randint(0, length, (13,), generator=generator)
    target[1], target[2], target[5], target[6] = 0, length - 1, length // 2, length
    x[3] += 100
    x[4, 1::2], target[4] = -INF, 0
    x[5, length // 2] = -INF
    target[7] = target[8] = IGNORED
    x[8, length // 2] = NAN
    x[9] = -INF
    x[10, length // 2] = INF
    x[11, length - 1] = NAN
    x[12, 3] = 40
    weight = torch.rand(length, generator=generator) + 0.5
    weight[::7] = 0
    return Rows(x, target, weight if weighted else None)


class Truth(NamedTuple):
    """In float64: a row's loss, lse, gradient, the size of the terms it is the difference of, and the largest |x|."""

    loss: torch.Tensor
    lse: torch.Tensor
    gradient: torch.Tensor
    terms: torch.Tensor
    top: torch.Tensor


def truth_of(rows, options, by_class=1.0, by_row=1.0, into_lse=None):
    """By definition, of `reduction` "none"; the gradient for loss / by_class + z-loss / by_row + into_lse · lse, of
    rows that are not ignored if there is an `into_lse`."""
    scaled, slope = rows.logits.double() * options.scale, torch.ones((), dtype=F64)
    if options.softcap is not None:
        power = (-2 / options.softcap * scaled.abs()).exp()
        slope = 4 * power / (1 + power) ** 2  # 1 - tanh^2 with all its digits
        scaled = options.softcap * torch.tanh(scaled / options.softcap)
    lse, classes = scaled.logsumexp(1), scaled.shape[1]
    if rows.target.is_floating_point():
        kept = known = torch.ones(len(lse), dtype=torch.bool)
        q = rows.target.double()
    else:
        kept, known = rows.target != IGNORED, (rows.target >= 0) & (rows.target < classes)
        q = torch.nn.functional.one_hot(torch.where(known, rows.target, 0), classes).double()
    weight = torch.ones(classes, dtype=F64) if rows.weight is None else rows.weight.double()
    mass = weight * ((1 - options.label_smoothing) * q + options.label_smoothing / classes)
    loss = torch.where(mass == 0, 0.0, mass * (lse[:, None] - scaled)).sum(1) + options.z_loss * lse**2
    none = ~lse.isfinite() | ~known
    into_lse = torch.zeros(()) if into_lse is None else into_lse.double()
    pull = mass.sum(1) / by_class + 2 * options.z_loss * lse / by_row
    p = (scaled - lse[:, None]).exp()
    gradient = (p * (pull + into_lse)[:, None] - mass / by_class) * slope * options.scale
    gradient[none] = NAN
    gradient[~kept] = 0
    terms = (mass / by_class + p * (pull.abs() + into_lse.abs())[:, None]) * slope * abs(options.scale)
    top = torch.where(scaled.isfinite(), scaled.abs(), 0).amax(1)
    return Truth(loss.masked_fill(none, NAN).masked_fill(~kept, 0), lse, gradient, terms, top)


def worst(got, truth, size):
    """The largest error in eps of max(|truth|, size); NaN and infinities have to agree."""
    agree = (got == truth) | (got.isnan() & truth.isnan())
    error = (got.double() - truth).abs() / torch.maximum(truth.abs(), size)
    return float(torch.where(agree, 0.0, error.nan_to_num(INF, INF)).max() / eps(got.dtype))


def assert_gradient(got, truth):
    """16 bits are rounded once; in fp32 there are the errors of the terms, above all of the probability."""
    if got.dtype.itemsize == 2:
        largest = truth.gradient[truth.gradient.isfinite()].abs().max()
        assert worst(got, truth.gradient, largest * 1e-3) <= 0.6
    else:
        assert worst(got, truth.gradient, truth.terms.nan_to_num(0).clamp(min=1e-30)) <= 60


@pytest.fixture
def loss(device):
    return device.module("ops.cross_entropy.cuda")


@pytest.mark.parametrize(("regime", "dtype", "options"), CASES)
def test_rows_of_every_regime(device, loss, regime, dtype, options):
    largest, words, as_wanted = REGIMES[regime]
    device.reset(largest)
    rows = special_rows(words * 16 // dtype.itemsize - 1, dtype, options.label_smoothing != 0)
    if words > 30000:
        rows = rows.some([0, 5, 8, 12])
    rows = rows._replace(logits=framed(rows.logits))

    def apply(rows):
        out = framed(torch.full(rows.logits.shape, NAN, dtype=dtype), 7)
        result = loss.forward(*rows, None, options, gradient=out)
        assert result.gradient is out
        assert (frame_of(out) == 7).all()
        return result.loss.clone(), result.lse.clone(), out.clone()

    got = apply(rows)
    assert any(as_wanted(kernel) for kernel in device.launched)
    truth = truth_of(rows, options)
    assert worst(got[0], truth.loss, truth.top) <= 12
    assert worst(got[1], truth.lse, truth.top) <= 12
    assert_gradient(got[2], truth)
    device.backwards = True
    for mine, other in zip(apply(rows.some(slice(1, 2))), got, strict=True):
        assert same_bits(mine, other[1:2]), "a row depends on those around it, or on the order of threads"


@pytest.mark.parametrize("options", [NONE, SMOOTH._replace(softcap=1e30)])
def test_losses_far_from_zero_keep_their_digits(loss, options):
    # Of equal logits every class is log C away.  A product with softcap that is rounded with what follows loses that.
    for height in (1e4, -1e8, 1e20):
        rows = special_rows(3001, F32, options.softcap is not None).some([0, 1, 2])
        result = loss.forward(torch.full((3, 3001), height), *rows[1:], None, options)
        truth = truth_of(rows._replace(logits=torch.zeros(3, 3001)), options)
        assert worst(result.loss, truth.loss, torch.zeros(())) <= 20


@pytest.mark.parametrize(("length", "dtype", "options"), [(50, BF16, ALL), (50, F32, NONE), (3001, BF16, NONE)])
def test_the_mean_of_rows_and_its_gradient(loss, length, dtype, options):
    options = options._replace(reduction="mean")
    rows = special_rows(length, dtype, options.label_smoothing != 0).some([0, 1, 2, 7, 8, 12])
    kept = rows.target != IGNORED
    by_row = int(kept.sum())
    by_class = by_row if rows.weight is None else float(rows.weight.double()[rows.target[kept]].sum())
    truth = truth_of(rows, options, by_class, by_row)
    z = torch.where(kept, options.z_loss * truth.lse**2, 0)
    want = (truth.loss - z).sum() / by_class + z.sum() / by_row
    for _ in range(2):  # the second call finds the launches of the first
        result = loss.forward(*rows, None, options, gradient=True)
        assert worst(result.loss, want, truth.top.max()) <= 12
        close(result.divisors, torch.tensor([by_class, by_row], dtype=F64))
        assert_gradient(result.gradient, truth)
    inplace = rows.logits.clone()
    loss.forward(inplace, *rows[1:], None, options, gradient=inplace)
    assert same_bits(inplace, result.gradient)
    assert_gradient(loss.rescale(result.gradient, torch.tensor(2.0)) / 2, truth)


@pytest.mark.parametrize(("length", "dtype", "options"), [(50, F32, NONE), (3001, BF16, NONE), (3001, F32, ALL)])
def test_the_gradient_from_a_given_lse(loss, length, dtype, options):
    everything = special_rows(length, dtype, options.label_smoothing != 0)
    some = everything.some([0, 1, 2, 3, 12])
    for rows, into_lse in ((everything, None), (some, torch.linspace(-1, 1, 5))):
        result = loss.forward(*rows, None, options)
        given = (result.lse, result.lse_low, result.divisors, options)
        out = framed(torch.full(rows.logits.shape, NAN, dtype=dtype), 7)
        loss.backward(framed(rows.logits), *rows[1:], *given, torch.ones(()), into_lse, out)
        assert_gradient(out, truth_of(rows, options, into_lse=into_lse))
        assert (frame_of(out) == 7).all()


@pytest.mark.parametrize(("length", "dtype"), [(30, BF16), (1001, F32)])
def test_probabilities_and_what_is_reported_beside_the_loss(loss, length, dtype):
    rows = special_rows(length, dtype, weighted=True).some([0, 1, 2, 12])
    rows = rows._replace(target=torch.softmax(torch.randn(4, length), 1), logits=framed(rows.logits))
    result = loss.forward(*rows, None, ALL, aux=True, gradient=True)
    truth = truth_of(rows, ALL)
    assert worst(result.loss, truth.loss, truth.top) <= 12
    assert_gradient(result.gradient, truth)
    u = ALL.softcap * torch.tanh(rows.logits.double() * ALL.scale / ALL.softcap)
    assert worst(result.z_loss, ALL.z_loss * truth.lse**2, torch.tensor(1e-3)) <= 40
    assert worst(result.entropy, -(u.softmax(1) * u.log_softmax(1)).sum(1), torch.tensor(1.0)) <= 60
    assert torch.equal(u.gather(1, result.predicted[:, None])[:, 0], u.amax(1))


def test_sums_over_so_many_rows_that_several_blocks_take_them(loss):
    count, options = 17000, Options(z_loss=0.5)
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(0, 3, (count,), generator=generator)
    target[::5] = IGNORED
    rows = Rows(torch.randn(count, 3, generator=generator), target, torch.tensor([0.5, 1.0, 2.0]))
    result, truth, kept = loss.forward(*rows, None, options), truth_of(rows, options), target != IGNORED
    by_class, by_row = float(rows.weight[target[kept]].double().sum()), float(kept.sum())
    assert result.divisors.tolist() == [by_class, by_row]
    z = torch.where(kept, options.z_loss * truth.lse**2, 0)
    close(result.loss, (truth.loss - z).sum() / by_class + z.sum() / by_row)

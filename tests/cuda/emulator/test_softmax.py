"""softmax, log_softmax and logsumexp of every kind of row, by the kernels' own code on the CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.core")

from tests.arrays import same_bits  # noqa: E402
from tests.cuda.emulator.cases import (  # noqa: E402
    BF16,
    F16,
    F32,
    F64,
    assert_as_accurate_as_torch,
    first_length,
    frame_of,
    framed,
    special_rows,
    with_a_dominant_one,
)
from tests.tolerances import worst_ulps  # noqa: E402

NAMES = ("softmax", "log_softmax", "logsumexp")
# How a row is taken -> (the largest cluster that is granted, what the shape is like).
REGIMES = {
    "some lanes of a warp": (16, lambda shape: shape.group == 8),
    "half a warp": (16, lambda shape: shape.group == 16 and shape.slots > 1),
    "a warp": (16, lambda shape: shape.group == 32 and shape.slots > 1),
    "a few warps": (16, lambda shape: shape.group == 64),
    "a block": (16, lambda shape: shape.group > 64 and shape.group == shape.threads),
    "words held and kept": (2, lambda shape: shape.cluster == 2 and 0 < shape.held < shape.slots),
    "a cluster of sixteen": (16, lambda shape: shape.cluster == 16),
    "a cluster that stays": (2, lambda shape: shape.persistent),
    "pieces": (0, lambda shape: shape.threads == 512),
}
CASES = [
    *(("softmax", regime, F32) for regime in REGIMES if regime != "half a warp"),
    *(("log_softmax", regime, BF16) for regime in REGIMES),
    *(("log_softmax", regime, F32) for regime in ("a warp", "a few warps", "words held and kept", "pieces")),
    *(("softmax", regime, F16) for regime in ("some lanes of a warp", "half a warp", "a cluster of sixteen")),
    ("softmax", "a block", F64),
    *(("logsumexp", regime, F32) for regime in ("some lanes of a warp", "a block", "pieces")),
    ("logsumexp", "a block", BF16),
]


@pytest.fixture
def take(device):
    """A function that applies an operation to rows, and a length of rows that a regime takes."""
    softmax, plans = device.module("ops.softmax.cuda"), device.module("ops.softmax.plans")

    def apply(name, x, offset=1, **options):
        if name == "logsumexp":
            return softmax.logsumexp(x, 1, F64 if x.dtype == F64 else F32)
        out = framed(torch.full(x.shape, torch.nan, dtype=x.dtype), 7, offset)
        assert softmax.__dict__[name](x, 1, x.dtype, out) is out
        assert (frame_of(out) == 7).all()
        return out.clone()

    def length(name, regime, dtype):
        largest, fits = REGIMES[regime]
        device.reset(largest)
        operation = NAMES.index(name)
        return first_length(lambda words: plans.forward(operation, words, dtype.itemsize, device.limits()), fits, dtype)

    return apply, length


@pytest.mark.parametrize(("name", "regime", "dtype"), CASES)
def test_rows_of_every_regime(device, take, name, regime, dtype):
    apply, length = take
    x = special_rows(length(name, regime, dtype), dtype)
    among_others = framed(x)
    got = apply(name, among_others)
    assert_as_accurate_as_torch(name, x, got)
    assert same_bits(apply(name, among_others[2:3]), got[2:3]), "a row depends on those around it"
    device.backwards = True
    assert same_bits(apply(name, among_others[2:4]), got[2:4]), "a row depends on the order of threads"


@pytest.mark.parametrize("regime", ["a warp", "words held and kept"])
@pytest.mark.parametrize("offset", [0, 2])
def test_results_that_start_elsewhere_in_a_word(take, regime, offset):
    apply, length = take
    x = special_rows(length("log_softmax", regime, F32), F32)
    assert_as_accurate_as_torch("log_softmax", x, apply("log_softmax", framed(x), offset))


def test_aligned_rows(take):
    apply, _ = take
    for length, dtype in ((64, F32), (1600, BF16), (4096, BF16)):
        x = special_rows(length, dtype)
        assert_as_accurate_as_torch("log_softmax", x, apply("log_softmax", x))


@pytest.mark.parametrize("regime", ["a warp", "a few warps", "words held and kept", "a cluster that stays", "pieces"])
def test_small_terms_beside_a_dominant_one(take, regime):
    apply, length = take
    x = with_a_dominant_one(length("log_softmax", regime, F32), -20.0)
    got = apply("log_softmax", framed(x))
    assert worst_ulps(got.amax(1), torch.full((3,), -torch.log1p(torch.exp(torch.tensor(-20.0, dtype=F64))))) <= 16
    if regime != "a cluster that stays":
        regime = "a block" if "words" in regime or "few" in regime else regime
        x = with_a_dominant_one(length("logsumexp", regime, F32), -20.0)
        got = apply("logsumexp", framed(x))
        assert worst_ulps(got, torch.full((3,), torch.log1p(torch.exp(torch.tensor(-20.0, dtype=F64))))) <= 16


@pytest.mark.parametrize(("length", "dtype"), [(300, F32), (3001, BF16)])
def test_the_whole_range_of_numbers(take, length, dtype):
    apply, _ = take
    least, most = torch.finfo(dtype).min, torch.finfo(dtype).max
    x = torch.full((4, length), least, dtype=dtype)  # what masks are filled with
    x[1, 1:] = -torch.inf
    x[2, 0], x[3, length - 1] = most, 0
    want = torch.zeros(4, length)
    want[0] = 1 / length
    want[1, 0] = want[2, 0] = want[3, length - 1] = 1
    assert worst_ulps(apply("softmax", framed(x)), want) <= 2
    logs = apply("log_softmax", framed(x))
    assert worst_ulps(logs[0], want[0].log()) <= 2
    assert (logs[1, 1:] == -torch.inf).all()


def test_columns(device):
    softmax = device.module("ops.softmax.cuda")
    for name in NAMES:
        x = special_rows(301, F32)
        got = getattr(softmax, name)(x.t().contiguous(), 0, F32)
        assert_as_accurate_as_torch(name, x, got if name == "logsumexp" else got.t())


def test_a_kept_launch_gives_the_same(device):
    softmax, x = device.module("ops.softmax.cuda"), special_rows(64, F32)
    first, again = (softmax.log_softmax(x, 1, F32) for _ in range(2))
    assert same_bits(first, again)

"""Gradients of softmax, log_softmax and logsumexp of every kind of row, by the kernels' own code on the CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.core")

from tests.arrays import same_bits  # noqa: E402
from tests.cuda.emulator.cases import BF16, F32, INF, NAN, first_length, frame_of, framed  # noqa: E402
from tests.tolerances import eps  # noqa: E402

NAMES, DTYPES = ("softmax", "log_softmax"), (F32, BF16)
# How a row is taken -> (the largest cluster that is granted, what the shape is like).
REGIMES = {
    "some lanes of a warp": (16, lambda shape: shape.group == 8),
    "a few warps": (16, lambda shape: 32 < shape.group < shape.threads),
    "a block": (16, lambda shape: shape.group > 32 and shape.group == shape.threads),
    "words held and kept": (2, lambda shape: shape.cluster == 2 and 0 < shape.held < shape.slots),
    "a cluster of sixteen": (16, lambda shape: shape.cluster == 16),
    "pieces": (0, lambda shape: shape.threads == 512),
}
CASES = [
    *(
        (name, regime, dtype)
        for regime in ("some lanes of a warp", "words held and kept")
        for name in NAMES
        for dtype in DTYPES
    ),
    *(("softmax", regime, F32) for regime in ("a few warps", "a block", "a cluster of sixteen", "pieces")),
    *(("log_softmax", regime, BF16) for regime in ("a few warps", "a block", "a cluster of sixteen", "pieces")),
]
BOUND = {BF16: 1, F32: 30}  # eps of the terms that a gradient is the difference of


def results_of(name, length, dtype):
    """(y, incoming gradient, truth, size of its terms) of rows, among them NaN ones and infinite gradients."""
    generator = torch.Generator().manual_seed(length)
    x, grad = (torch.randn(5, length, generator=generator).mul_(3) for _ in range(2))
    x[1, ::2] = -INF
    x[2] += 300
    y = getattr(torch, name)(x.double(), 1).to(dtype)
    y[3, length - 1] = NAN
    grad[4, length // 2] = INF
    grad = grad.to(dtype)
    g, p = grad.double(), y.double() if name == "softmax" else y.double().exp()
    if name == "softmax":
        truth = p * (g - (g * p).sum(1, keepdim=True))
        return y, grad, truth, p * (g.abs() + (g * p).abs().sum(1, keepdim=True))
    return y, grad, g - p * g.sum(1, keepdim=True), g.abs() + p * g.abs().sum(1, keepdim=True)


def worst(got, truth, size):
    """The largest error in eps of `size`; NaN and infinities have to agree."""
    gap = torch.where((got == truth) | (got.isnan() & truth.isnan()), 0.0, (got.double() - truth).abs())
    return float((gap / size.clamp(min=1e-36)).nan_to_num(INF).masked_fill(gap == 0, 0).max() / eps(got.dtype))


@pytest.mark.parametrize(("name", "regime", "dtype"), CASES)
def test_rows_of_every_regime(device, name, regime, dtype):
    largest, fits = REGIMES[regime]
    device.reset(largest)
    plans = device.module("ops.softmax.plans")
    length = first_length(lambda words: plans.backward(words, dtype.itemsize, device.limits()), fits, dtype)
    backward = getattr(device.module("ops.softmax.cuda"), f"{name}_backward")

    def apply(grad, y):
        out = framed(torch.full(y.shape, NAN, dtype=dtype), 7)
        assert backward(grad, y, 1, dtype, out) is out
        assert (frame_of(out) == 7).all()
        return out.clone()

    y, grad, truth, size = results_of(name, length, dtype)
    y = framed(y)
    got = apply(framed(grad), y)
    assert worst(got, truth, size) <= BOUND[dtype]
    device.backwards = True
    elsewhere = framed(grad, offset=2)  # its words are not those of y
    assert worst(apply(elsewhere[:2], y[:2]), truth[:2], size[:2]) <= BOUND[dtype]
    assert same_bits(apply(framed(grad)[1:2], y[1:2]), got[1:2]), "a row depends on what is around it"


@pytest.mark.parametrize(("length", "dtype"), [(37, F32), (200, BF16), (4099, F32)])
def test_logsumexp(device, length, dtype):
    softmax = device.module("ops.softmax.cuda")
    x = torch.randn(5, length, generator=torch.Generator().manual_seed(length)).to(dtype)
    x[1] = -INF
    x[2, ::2] = INF
    x[3, 0] = NAN
    lse, grad = torch.logsumexp(x.double(), 1).float(), torch.arange(1.0, 6.0)
    out = framed(torch.full(x.shape, NAN, dtype=dtype), 7)
    softmax.logsumexp_backward(grad, framed(x), lse, 1, out)
    truth = grad[:, None] * (x.double() - lse.double()[:, None]).exp()
    truth[1] = 0
    truth[2] = torch.where(x[2] == INF, 3.0 / int((x[2] == INF).sum()), 0.0)
    assert worst(out.clone(), truth, truth.abs()) <= BOUND[dtype]
    assert (frame_of(out) == 7).all()


def test_columns(device):
    softmax = device.module("ops.softmax.cuda")
    for name in NAMES:
        y, grad, truth, size = results_of(name, 301, F32)
        got = getattr(softmax, f"{name}_backward")(grad.t().contiguous(), y.t().contiguous(), 0, F32)
        assert worst(got.t(), truth, size) <= BOUND[F32]

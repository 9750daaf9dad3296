"""The native kernels of cross-entropy and its gradient, against the formula in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.ops.cross_entropy.cpu_cases import case, close, expected

from online_softmax.ops.cross_entropy import cpu
from online_softmax.ops.cross_entropy.options import Options

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

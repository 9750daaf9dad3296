"""First and second derivatives of softmax, log_softmax and logsumexp of tensors."""

import numpy as np
import pytest
import torch
from tests.arrays import make, random, same_bits
from tests.ops.softmax.common import FUNCTIONS, NAMES
from tests.tolerances import close

import online_softmax as osm

TORCHS = {"softmax": torch.softmax, "log_softmax": torch.log_softmax, "logsumexp": torch.logsumexp}


def leaf(shape=(3, 4), seed=0, dtype="float64"):
    return make("torch", random(shape, seed), dtype).requires_grad_()


@pytest.mark.parametrize("axis", [0, 1, None, (2, 0)])
@pytest.mark.parametrize("name", NAMES)
def test_first_and_second_derivatives_are_right(name, axis, impl):
    x = leaf((2, 3, 2))
    assert torch.autograd.gradcheck(lambda x: FUNCTIONS[name](x, axis, impl=impl), (x,))
    assert torch.autograd.gradgradcheck(lambda x: FUNCTIONS[name](x, axis, impl=impl), (x,))


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_with_where_and_with_infinities(name, impl):
    keep = torch.tensor([[True, False, True], [False, False, False]])
    x = leaf((2, 3))

    def run(x):
        y = FUNCTIONS[name](x, 1, where=keep, impl=impl)
        return torch.where(torch.isfinite(y), y, 0.0)

    assert torch.autograd.gradcheck(run, (x,))
    if name == "logsumexp":
        y = osm.logsumexp(torch.tensor([[-torch.inf, -torch.inf], [-torch.inf, 2.0]]).double().requires_grad_(), 1)
        assert y.requires_grad


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(4, 6), (3, 20_000)])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_agree_with_float64_in_every_dtype(name, shape, dtype, impl):
    x = leaf(shape, dtype=dtype)
    wide = x.detach().double().requires_grad_()
    y, truth = FUNCTIONS[name](x, 1, impl=impl), TORCHS[name](wide, 1)
    g = make("torch", random(tuple(y.shape), 1), dtype)
    (dx,), (want,) = torch.autograd.grad(y, x, g), torch.autograd.grad(truth, wide, g.double())
    assert dx.dtype == x.dtype
    scale = float(want.abs().max())
    eps = torch.finfo(x.dtype).eps
    close(dx, want, 4, atol=(8 if dtype in ("float32", "float64") else 3) * eps * scale)


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_of_logsumexp_far_from_zero_keeps_its_precision_as_torchs_does(name, impl):
    x = (leaf((5, 7)).detach() + 1000.0).float().requires_grad_()
    wide = x.detach().double().requires_grad_()
    FUNCTIONS[name](x, 1, impl=impl).sum().backward()
    TORCHS[name](wide, 1).sum().backward()
    # softmax of a sum of 1 has gradient 0; logsumexp's p inherits the rounding of lse, as in torch.
    close(x.grad, wide.grad, 8, atol=2e-6 if name != "logsumexp" else 2e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_a_wider_result_of_a_narrow_input_has_a_gradient_in_the_inputs_dtype(name, dtype, impl):
    x = leaf((2, 3, 4), dtype=dtype)
    y = FUNCTIONS[name](x, 1, dtype=torch.float32, impl=impl)
    assert y.dtype == torch.float32
    wide = x.detach().double().requires_grad_()
    y[:, 0].sum().backward()
    TORCHS[name](wide, 1)[:, 0].sum().backward()
    assert x.grad.dtype == x.dtype
    close(x.grad, wide.grad, 0.6, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_saved_log_sum_exp_is_not_rounded_before_the_gradient(name, impl):
    x = leaf((4, 300), dtype="bfloat16")
    wide = x.detach().double().requires_grad_()
    y, truth = FUNCTIONS[name](x, 1, impl=impl), TORCHS[name](wide, 1)
    g = torch.ones_like(y) if name == "logsumexp" else torch.eye(*y.shape).to(y)
    y.backward(g)
    truth.backward(g.double())
    # log_softmax saves its bf16 result: exp of it is off by |log p| half-units, as in torch.
    close(x.grad, wide.grad, 0.52 if name == "logsumexp" else 8, atol=0 if name == "logsumexp" else 1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_incoming_gradients_of_any_stride(name, impl):
    x = leaf((4, 6))
    y = FUNCTIONS[name](x, 1, impl=impl)
    dense = make("torch", random(tuple(y.shape), 2), "float64")
    views = [dense, torch.ones((), dtype=torch.float64).expand(y.shape), torch.zeros_like(dense)]
    if dense.ndim == 2:
        wide = make("torch", random((8, 12), 3), "float64")
        views += [wide[::2, ::2], wide[:6, :4].T, wide[:1, :6].expand(4, 6), wide[:4, :1].expand(4, 6)]
    else:
        views += [make("torch", random((12,), 3), "float64")[::3]]
    for g in views:
        (got,) = torch.autograd.grad(y, x, g, retain_graph=True)
        (want,) = torch.autograd.grad(y, x, g.contiguous(), retain_graph=True)
        assert same_bits(got, want)
        wide_x = x.detach().clone().requires_grad_()
        close(got, torch.autograd.grad(TORCHS[name](wide_x, 1), wide_x, g)[0], 16, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_strided_inputs_get_their_gradient(name, impl):
    base = leaf((6, 9))
    for view, torchs in ((lambda x: x[::2, 1::3], 0), (lambda x: x.T, 1), (lambda x: x[:1].expand(4, 9), -1)):
        (got,) = torch.autograd.grad(FUNCTIONS[name](view(base), torchs, impl=impl).square().sum(), base)
        (want,) = torch.autograd.grad(TORCHS[name](view(base), torchs).square().sum(), base)
        close(got, want, 16, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_nothing(name, impl):
    for shape, axis in (((0, 3), 1), ((3, 0), 1), ((0,), 0), ((), 0)):
        x = torch.zeros(shape, requires_grad=True)
        FUNCTIONS[name](x, axis, impl=impl).sum().backward()
        assert x.grad.shape == x.shape


@pytest.mark.parametrize("name", NAMES)
def test_integers_and_no_grad_record_nothing(name, impl):
    assert not FUNCTIONS[name](torch.tensor([1, 2]), impl=impl).requires_grad
    x = leaf()
    with torch.no_grad():
        assert not FUNCTIONS[name](x, impl=impl).requires_grad
    with torch.inference_mode():
        close(FUNCTIONS[name](x.detach(), 1, impl=impl), TORCHS[name](x.detach(), 1), 8, atol=1e-15)
    assert FUNCTIONS[name](x, impl=impl).requires_grad


@pytest.mark.parametrize("name", NAMES)
def test_backward_twice_gives_the_same_bits_and_saved_tensors_are_guarded(name, impl):
    x = leaf()
    y = FUNCTIONS[name](x, 1, impl=impl)
    first = torch.autograd.grad(y.sum() * 2, x, retain_graph=True)[0]
    assert same_bits(first, torch.autograd.grad(y.sum() * 2, x, retain_graph=True)[0])
    if name != "logsumexp":
        y = FUNCTIONS[name](x, 1, impl=impl)
        with torch.no_grad():
            y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_the_sign_is_no_part_of_autograd(impl):
    x = leaf((3,))
    value, sign = osm.logsumexp(x, return_sign=True, impl=impl)
    value.backward()
    close(x.grad, torch.softmax(x.detach(), 0), 8)
    assert not sign.requires_grad
    assert not osm.logsumexp(x, b=-1.0, return_sign=True, impl="auto").sign.requires_grad


def test_numpy_arrays_are_no_part_of_autograd():
    assert isinstance(osm.softmax(np.zeros(2)), np.ndarray)

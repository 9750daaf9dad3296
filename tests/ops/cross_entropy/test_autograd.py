"""Gradients of cross_entropy by autograd: when they are made, any incoming gradient, again, and second derivatives."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.arrays import float64, same_bits
from tests.ops.cross_entropy.common import grad_of, indices, logits, probabilities, true_gradient
from tests.tolerances import close, eps

import online_softmax as osm
from online_softmax._dispatch import implementation

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
REDUCTIONS = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])


@pytest.fixture
def calls(impl, monkeypatch):
    """What the implementation was asked to do, in order: 'loss', 'loss and gradient', 'gradient', 'rescale'."""
    module = implementation("cross_entropy", torch.zeros(1, 1), impl)
    seen = []
    forward, backward, rescale = module.forward, module.backward, module.rescale

    def record_forward(*args, gradient=None, **options):
        seen.append("loss" if gradient is None else "loss and gradient")
        return forward(*args, gradient=gradient, **options)

    monkeypatch.setattr(module, "forward", record_forward)
    monkeypatch.setattr(module, "backward", lambda *a, **k: (seen.append("gradient"), backward(*a, **k))[1])
    monkeypatch.setattr(module, "rescale", lambda *a: (seen.append("rescale"), rescale(*a))[1])
    return seen


class TestWhenTheGradientIsMade:
    """In the loss's own pass, or in backward; proved by what the implementation was asked for."""

    @pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    def test_of_mean_and_sum_it_comes_with_the_loss(self, reduction, dtype, impl, calls):
        x = logits(dtype=dtype, grad=True)
        osm.cross_entropy(x, indices(), reduction=reduction, impl=impl).backward()
        assert calls == ["loss and gradient", "rescale"]

    @pytest.mark.parametrize(("dtype", "reduction"), [("float16", "mean"), ("float16", "sum"), ("float32", "none")])
    def test_of_fp16_and_of_unreduced_losses_it_comes_in_backward(self, dtype, reduction, impl, calls):
        x = logits(dtype=dtype, grad=True)
        osm.cross_entropy(x, indices(), reduction=reduction, impl=impl).sum().backward()
        assert calls == ["loss", "gradient"]

    def test_without_autograd_it_is_not_made_at_all(self, impl, calls):
        with torch.no_grad():
            osm.cross_entropy(logits(grad=True), indices(), impl=impl)
        with torch.inference_mode():
            osm.cross_entropy(logits(), indices(), impl=impl)
        osm.cross_entropy(logits(), indices(), impl=impl)
        assert calls == ["loss"] * 3

    def test_a_second_backward_on_the_same_graph_recomputes_from_the_logits(self, impl, calls):
        x = logits(dtype="float32", grad=True)
        loss = osm.cross_entropy(x, indices(), impl=impl)
        first, second, third = (torch.autograd.grad(loss, x, retain_graph=True)[0] for _ in range(3))
        assert calls == ["loss and gradient", "rescale", "gradient", "gradient"]
        close(second, first, 2, atol=1e-8)
        assert same_bits(second, third)
        assert second.data_ptr() != first.data_ptr()

    def test_the_buffer_of_the_loss_is_handed_out_itself_and_only_once(self, impl, monkeypatch):
        module = implementation("cross_entropy", torch.zeros(1, 1), impl)
        made, forward = [], module.forward
        monkeypatch.setattr(module, "forward", lambda *a, **k: (made.append(forward(*a, **k)), made[-1])[1])
        x = logits(grad=True)
        loss = osm.cross_entropy(x, indices(), impl=impl)
        buffer = made[0].gradient
        before = buffer.clone()
        (g,) = torch.autograd.grad(loss, x, retain_graph=True)
        assert g.data_ptr() == buffer.data_ptr()
        assert same_bits(g, before)
        (again,) = torch.autograd.grad(loss, x, torch.tensor(-2.0).double())
        assert again.data_ptr() != buffer.data_ptr()
        close(again, -2 * before, 8)
        assert same_bits(buffer, before)

    def test_an_incoming_gradient_other_than_one_scales_the_buffer_in_place(self, impl):
        for factor in (0.0, -3.0, 1024.0, 0.1):
            x = logits(grad=True)
            (osm.cross_entropy(x, indices(), impl=impl) * factor).backward()
            # A gradient is the difference of two shares of factor / rows: its error is relative to those.
            share = abs(factor) * eps(torch.float64)
            wanted = true_gradient(x, indices(), grad_loss=torch.tensor(factor, dtype=torch.float64))
            close(x.grad, wanted, 8, atol=share + 1e-18)

    def test_an_unused_loss_makes_no_backward(self, impl, calls):
        x = logits(grad=True)
        _, aux = osm.cross_entropy(x, indices(), return_aux=True, impl=impl)
        aux.lse.sum().backward()
        assert calls == ["loss and gradient", "gradient"]
        close(x.grad, torch.softmax(x.detach(), 1), 8)


def test_rescale_by_exactly_one_touches_nothing(impl):
    for dtype in DTYPES.values():
        g = torch.tensor([[1.0, float("nan")], [0.5, -0.0]], dtype=dtype)
        before = g.clone()
        module = implementation("cross_entropy", g, impl)
        assert module.rescale(g, torch.ones(())).data_ptr() == g.data_ptr()
        assert same_bits(g, before)
        assert module.rescale(g, torch.tensor(2.0))[0, 0] == 2.0


@REDUCTIONS
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(9, 7), (3, 20_000)])
def test_gradients_of_every_dtype_agree_with_float64_and_are_rounded_once(shape, dtype, reduction, impl):
    x, t = logits(*shape, dtype=dtype), indices(*shape, ignored=(1,))
    g = grad_of(x, t, reduction=reduction, impl=impl)
    assert g.dtype == x.dtype
    n, atol = {"float64": (64, 1e-15), "float32": (64, 1e-7)}.get(dtype, (0.55, 1e-6))
    close(g, true_gradient(x, t, reduction=reduction), n, atol)


def test_loss_scaling_rescues_fp16_gradients_that_would_underflow(impl):
    rows, factor = 30_000, 2.0**15
    x, t = torch.zeros(rows, 4, dtype=torch.float16), torch.zeros(rows, dtype=torch.int64)
    g = grad_of(x, t, grad_loss=torch.tensor(factor), impl=impl)
    close(g, true_gradient(x, t, grad_loss=torch.tensor(factor).double()), 0.52)
    assert (g != 0).all()


def test_every_row_takes_its_own_incoming_gradient(impl):
    x, t = logits(7), indices(7, ignored=(1, 5))
    incoming = torch.tensor([0.0, 9.0, -2.0, 3.5, 1e3, 7.0, 0.25], dtype=torch.float64)
    want = true_gradient(x, t, grad_loss=incoming, reduction="none")
    close(grad_of(x, t, grad_loss=incoming, reduction="none", impl=impl), want, 16, atol=1e-13)
    # Half precision: applied in fp32, before the one rounding.
    half = x.to(torch.bfloat16)
    want = true_gradient(half, t, grad_loss=incoming, reduction="none")
    close(grad_of(half, t, grad_loss=incoming.float(), reduction="none", impl=impl), want, 0.55, atol=1e-6)


def test_incoming_gradients_of_any_stride(impl):
    x = logits(grad=True)
    loss = osm.cross_entropy(x, indices(), reduction="none", impl=impl)
    wide = torch.arange(24.0, dtype=torch.float64)
    for g in (
        wide[::4],
        wide[:: -1 if False else 3][:6],
        torch.tensor(2.0).double().expand(6),
        torch.zeros(6).double(),
    ):
        (got,) = torch.autograd.grad(loss, x, g, retain_graph=True)
        close(got, true_gradient(x, indices(), grad_loss=g, reduction="none"), 16, atol=1e-14)
    spatial = logits(24).reshape(2, 3, 4, 5).permute(0, 3, 1, 2).requires_grad_()
    t = indices(24).reshape(2, 3, 4)
    loss = osm.cross_entropy(spatial, t, reduction="none", impl=impl)
    g = torch.arange(24.0).double().reshape(4, 3, 2).permute(2, 1, 0)
    (got,) = torch.autograd.grad(loss, spatial, g)
    want = true_gradient(logits(24), t.reshape(-1), grad_loss=g.reshape(-1), reduction="none")
    close(got.permute(0, 2, 3, 1).reshape(24, 5), want, 16, atol=1e-14)


@REDUCTIONS
def test_gradients_reach_any_layout_of_the_logits(reduction, impl):
    base = logits(12, 10)
    for view in (
        lambda b: b[::2, 1::2],
        lambda b: b[:5, :6].T,
        lambda b: b[:1, :5].expand(6, 5),
        lambda b: b[:6].unflatten(1, (5, 2))[..., 1],
    ):
        leaf, torchs = base.clone().requires_grad_(), base.clone().requires_grad_()
        osm.cross_entropy(view(leaf), indices(), reduction=reduction, impl=impl).sum().backward()
        F.cross_entropy(view(torchs), indices(), reduction=reduction).sum().backward()
        close(leaf.grad, torchs.grad, 16, atol=1e-15)


@REDUCTIONS
@pytest.mark.parametrize(
    "options",
    [{}, {"label_smoothing": 0.1, "z_loss": 0.05}, {"scale": -0.7, "softcap": 2.0, "z_loss": 0.05}],
    ids=["plain", "smoothing and z", "scale, softcap and z"],
)
def test_first_and_second_derivatives(options, reduction, impl):
    x, w = logits(3, 4, grad=True), torch.tensor([0.3, 1.0, 2.0, 0.5]).double()
    t = indices(3, 4, ignored=(1,))
    for weight in (None, w):

        def fn(x, weight=weight):
            return osm.cross_entropy(x, t, weight, reduction=reduction, impl=impl, **options)

        assert torch.autograd.gradcheck(fn, (x,))
        assert torch.autograd.gradgradcheck(fn, (x,))


@REDUCTIONS
def test_first_and_second_derivatives_for_probability_targets(reduction, impl):
    x, p = logits(3, 4, grad=True), probabilities(3, 4).requires_grad_()
    w = torch.tensor([0.3, 1.0, 2.0, 0.5]).double()

    def fn(x, p):
        return osm.cross_entropy(x, p, w, reduction=reduction, label_smoothing=0.1, softcap=3.0, z_loss=0.1, impl=impl)

    assert torch.autograd.gradcheck(fn, (x, p))
    assert torch.autograd.gradgradcheck(fn, (x, p))
    fixed = x.detach()
    assert torch.autograd.gradcheck(lambda p: fn(fixed, p), (p,))
    assert not torch.allclose(torch.autograd.grad(fn(x, p).sum(), p)[0], torch.zeros(3, 4).double())


def test_create_graph_gives_a_gradient_that_can_be_differentiated(impl):
    x = logits(grad=True)
    (g,) = torch.autograd.grad(osm.cross_entropy(x, indices(), impl=impl), x, create_graph=True)
    assert g.requires_grad
    y = x.detach().clone().requires_grad_()
    (h,) = torch.autograd.grad(F.cross_entropy(y, indices()), y, create_graph=True)
    close(torch.autograd.grad(g.square().sum(), x)[0], torch.autograd.grad(h.square().sum(), y)[0], 64, atol=1e-16)


def test_nothing_the_caller_owns_is_written_to(impl):
    for dtype in DTYPES.values():
        for options in ({}, {"reduction": "none"}, {"z_loss": 0.1, "softcap": 3.0, "label_smoothing": 0.1}):
            x, t, w = logits().to(dtype).requires_grad_(), indices(ignored=(0,)), torch.ones(5, dtype=dtype)
            kept = [part.detach().clone() for part in (x, t, w)]
            versions = [part._version for part in (x, t, w)]
            loss = osm.cross_entropy(x, t, w, impl=impl, **options).sum()
            loss.backward(retain_graph=True)
            loss.backward()
            assert all(same_bits(a, b) for a, b in zip((x, t, w), kept, strict=True))
            assert versions == [part._version for part in (x, t, w)]


def test_two_losses_and_an_operation_that_saved_the_logits_share_them(impl):
    raw = logits(grad=True)
    z = torch.softmax(raw, 1)
    a, b = indices(), (indices() + 2) % 5
    (osm.cross_entropy(z, a, impl=impl) + 0.5 * osm.cross_entropy(z, b, impl=impl) + z.square().sum()).backward()
    ref = raw.detach().clone().requires_grad_()
    q = torch.softmax(ref, 1)
    (F.cross_entropy(q, a) + 0.5 * F.cross_entropy(q, b) + q.square().sum()).backward()
    close(raw.grad, ref.grad, 32, atol=1e-15)


def test_logits_changed_between_loss_and_a_later_backward_are_noticed(impl):
    x = logits(grad=True)
    y = x * 1
    loss = osm.cross_entropy(y, indices(), reduction="none", impl=impl)
    with torch.no_grad():
        y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.sum().backward()


def test_gradients_accumulate_over_calls(impl):
    x = logits(grad=True)
    for _ in range(2):
        osm.cross_entropy(x, indices(), impl=impl).backward()
    close(x.grad, 2 * true_gradient(x, indices()), 16, atol=1e-16)


def test_no_gradient_flows_into_class_weights(impl):
    w = torch.ones(5, dtype=torch.float64, requires_grad=True)
    x = logits(grad=True)
    osm.cross_entropy(x, indices(), w, impl=impl).backward()
    assert w.grad is None
    assert x.grad is not None


def test_without_autograd_the_pair_of_loss_and_gradient_records_nothing(impl):
    x = logits(grad=True)
    loss, gradient = osm.cross_entropy_with_grad(x, indices(), impl=impl)
    assert not loss.requires_grad
    assert not gradient.requires_grad
    close(gradient, true_gradient(x, indices()), 8, atol=1e-16)
    (_, aux), _ = osm.cross_entropy_with_grad(x, indices(), return_aux=True, impl=impl)
    assert not aux.lse.requires_grad


def test_the_gradient_without_autograd_has_the_inputs_shape_and_kind(kind, impl):
    for shape in ((5,), (4, 5), (2, 5, 3), (2, 5, 3, 2)):
        x = logits(int(np.prod(shape)), 1, kind=kind).reshape(shape)
        rows = shape[:1] * (len(shape) > 1) + shape[2:]
        t = indices(int(np.prod(rows)), 5, kind=kind).reshape(rows)
        for reduction in ("mean", "none"):
            loss, gradient = osm.cross_entropy_with_grad(x, t, reduction=reduction, impl=impl)
            assert tuple(gradient.shape) == shape
            assert type(gradient) is type(x)
            assert gradient.dtype == x.dtype
            moved = np.moveaxis(float64(gradient), 0 if len(shape) == 1 else 1, -1).reshape(-1, 5)
            flat = np.moveaxis(float64(x), 0 if len(shape) == 1 else 1, -1).reshape(-1, 5)
            close(moved, true_gradient(flat, np.asarray(t).reshape(-1), reduction=reduction), 16, atol=1e-15)
            assert tuple(np.shape(loss)) == (rows if reduction == "none" else ())

"""Shapes, layouts, dtypes, targets and options drawn at random; losses and gradients against float64."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.arrays import INF, float64, make
from tests.conftest import ON_THE_CPU
from tests.ops.cross_entropy.common import true_gradient, truth
from tests.tolerances import close

import online_softmax as osm

NUMBERS = st.one_of(st.floats(-30, 30, width=16), st.sampled_from([0.0, 5.0, -50.0]))
DTYPES = ("float16", "bfloat16", "float32", "float64")


@st.composite
def problems(draw, kinds=("numpy", "torch")):
    """(kind, logits of any layout and rank, target, weight, options)."""
    kind = draw(st.sampled_from(kinds))
    dtype = draw(st.sampled_from([d for d in DTYPES if kind == "torch" or d != "bfloat16"]))
    classes, rest = draw(st.integers(1, 6)), draw(st.lists(st.integers(1, 3), max_size=3))
    rows = int(np.prod(rest))
    numbers = draw(st.lists(NUMBERS, min_size=rows * classes, max_size=rows * classes))
    last = make(kind, np.array(numbers).reshape(*rest, classes), dtype)
    x = np.moveaxis(last, -1, 0 if not rest else 1) if kind == "numpy" else last.movedim(-1, 0 if not rest else 1)
    if draw(st.booleans()):
        x = np.ascontiguousarray(x) if kind == "numpy" else x.contiguous()
    if kind == "numpy" and draw(st.booleans()):
        x = x[..., ::-1].copy()[..., ::-1]
    options = {"reduction": draw(st.sampled_from(["none", "mean", "sum"]))}
    if draw(st.booleans()):
        options["label_smoothing"] = draw(st.sampled_from([0.0, 0.1, 1.0]))
    if draw(st.booleans()):
        options["scale"] = draw(st.sampled_from([0.5, -1.0, 2.0]))
    if draw(st.booleans()):
        options["softcap"] = draw(st.sampled_from([1.0, 10.0]))
    if draw(st.booleans()):
        options["z_loss"] = 0.01
    if options["reduction"] == "mean" and draw(st.booleans()):
        options["num_items"] = draw(st.integers(1, 9))
    shares = st.integers(0, 4)
    if draw(st.booleans()):
        t = np.array(draw(st.lists(shares, min_size=rows * classes, max_size=rows * classes)), float) / 4
        target = make(
            kind, np.moveaxis(t.reshape(*rest, classes), -1, 0 if not rest else 1), draw(st.sampled_from(DTYPES[2:]))
        )
        flat = t.reshape(rows, classes)
    else:
        options["ignore_index"] = draw(st.sampled_from([-100, -1, 0]))
        some = st.one_of(st.integers(0, classes - 1), st.just(options["ignore_index"]))
        flat = np.array(draw(st.lists(some, min_size=rows, max_size=rows)), np.int64)
        target = make(kind, flat.reshape(rest), draw(st.sampled_from(["int32", "int64"])))
    weight = None
    if draw(st.booleans()):
        weight = make(kind, np.array(draw(st.lists(shares, min_size=classes, max_size=classes)), float), "float32")
    return kind, x, target, weight, options, float64(last).reshape(rows, classes), flat


def allowed(x):
    """(eps of the result, absolute error) for losses and for gradients."""
    name = str(x.dtype).rsplit(".", 1)[-1]
    return ((64, 1e-12), (64, 1e-12)) if name == "float64" else ((64, 5e-5), (64 if name == "float32" else 1, 5e-5))


def rows_of(gradient, classes):
    g = float64(gradient)
    return np.moveaxis(g, 0 if g.ndim == 1 else 1, -1).reshape(-1, classes)


@given(problems(), st.sampled_from(ON_THE_CPU))
def test_losses_and_gradients_agree_with_float64(problem, impl):
    _, x, target, weight, options, flat_x, flat_target = problem
    before = float64(x).copy()
    loss, gradient = osm.cross_entropy_with_grad(x, target, weight, impl=impl, **options)
    want = truth(flat_x, flat_target, weight, **options)
    for_loss, for_gradient = allowed(x)
    close(np.asarray(loss).reshape(want.shape), want, *for_loss)
    plain = osm.cross_entropy(x, target, weight, impl=impl, **options)
    assert np.array_equal(np.asarray(plain), np.asarray(loss), equal_nan=True)
    assert gradient.dtype == x.dtype
    if np.isfinite(want).all():
        dtype = np.float64 if "64" in str(x.dtype) else np.float32
        got = rows_of(gradient, flat_x.shape[1])
        coarse = {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(str(x.dtype).rsplit(".", 1)[-1], 0.0)
        wanted = true_gradient(flat_x, flat_target, weight, **options)
        close(got.astype(dtype), wanted, for_gradient[0], for_gradient[1] + coarse * np.abs(wanted))
    assert np.array_equal(float64(x), before)


@given(problems(kinds=("torch",)), st.sampled_from(ON_THE_CPU), st.sampled_from([1.0, -0.5, 3.0]))
def test_autograd_agrees_with_float64_for_any_incoming_gradient(problem, impl, factor):
    _, x, target, weight, options, flat_x, flat_target = problem
    leaf = x.detach().clone().requires_grad_()
    loss = osm.cross_entropy(leaf, target, weight, impl=impl, **options)
    g = torch.linspace(-1, 2, loss.numel() + 1, dtype=torch.float64)[1:].reshape(loss.shape) * factor
    loss.backward(g.to(loss.dtype))
    incoming = g.reshape(-1) if options["reduction"] == "none" else g
    want = true_gradient(flat_x, flat_target, weight, grad_loss=incoming, **options)
    if np.isfinite(want).all() and np.isfinite(truth(flat_x, flat_target, weight, **options)).all():
        coarse = {torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}.get(x.dtype, 0.0)
        dtype = np.float64 if x.dtype == torch.float64 else np.float32
        close(rows_of(leaf.grad, flat_x.shape[1]).astype(dtype), want, 64, allowed(x)[1][1] * 4 + coarse * np.abs(want))


@given(problems(), st.sampled_from(ON_THE_CPU))
def test_masking_a_class_without_mass_removes_it(problem, impl):
    kind, _, _, _, options, flat_x, flat_target = problem
    options = {name: value for name, value in options.items() if name not in ("softcap", "label_smoothing")}
    options["scale"] = abs(options.get("scale", 1.0))
    wider = np.concatenate([flat_x, np.full((len(flat_x), 1), -INF)], 1)
    t = flat_target
    wide_t = np.concatenate([t, np.zeros((len(t), 1))], 1) if t.ndim == 2 else t
    how = {"impl": impl, **options}
    dtype = "float64" if t.ndim == 2 else "int64"
    got, gradient = osm.cross_entropy_with_grad(make(kind, wider, "float64"), make(kind, wide_t, dtype), **how)
    want, plain = osm.cross_entropy_with_grad(make(kind, flat_x, "float64"), make(kind, t, dtype), **how)
    close(got, want, 64, 1e-14)
    assert (float64(gradient)[:, -1] == 0).all()
    close(float64(gradient)[:, :-1], plain, 64, 1e-14)

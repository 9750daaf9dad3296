"""Shapes, strides, axes, dtypes and options drawn at random; values and gradients against float64."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.arrays import INF, float64, make, same_bits
from tests.conftest import ON_THE_CPU
from tests.ops.softmax.common import FUNCTIONS, NAMES, TRUTH
from tests.tolerances import close, eps

import online_softmax as osm

NUMBERS = st.one_of(
    st.floats(-60, 60, width=16),
    st.sampled_from([0.0, 1.0, -INF, 100.0, -100.0]),
)


@st.composite
def arrays(draw, kinds=("numpy", "torch"), dtypes=("float16", "bfloat16", "float32", "float64"), numbers=NUMBERS):
    """(kind, array of any layout) with one to four axes, some of no length at all."""
    kind = draw(st.sampled_from(kinds))
    dtype = draw(st.sampled_from([d for d in dtypes if kind == "torch" or d != "bfloat16"]))
    shape = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    size = int(np.prod(shape))
    x = make(kind, np.array(draw(st.lists(numbers, min_size=size, max_size=size))).reshape(shape), dtype)
    order = draw(st.permutations(range(x.ndim)))
    x = x.transpose(order) if kind == "numpy" else x.permute(order)
    steps = tuple(slice(None, None, draw(st.integers(1, 2))) for _ in shape)
    x = x[steps]
    if kind == "numpy" and draw(st.booleans()):
        x = x[::-1]
    if draw(st.booleans()):
        x = x[:, None] if x.ndim < 4 else x
        x = np.broadcast_to(x, (x.shape[0], 3, *x.shape[2:])) if kind == "numpy" and x.shape[1:2] == (1,) else x
    return kind, x


@st.composite
def axes(draw, ndim):
    """Any spelling of one or several axes of ndim."""
    if draw(st.integers(0, 5)) == 0:
        return None
    some = draw(st.lists(st.integers(0, ndim - 1), min_size=1, max_size=ndim, unique=True))
    signed = tuple(a - ndim if draw(st.booleans()) else a for a in some)
    return signed[0] if len(signed) == 1 and draw(st.booleans()) else signed


def over(name, x, axis):
    """The truth of a float64 array over `axis` of any spelling."""
    chosen = range(x.ndim) if axis is None else [a % x.ndim for a in np.atleast_1d(axis)]
    kept = [a for a in range(x.ndim) if a not in chosen]
    order = (*kept, *chosen)
    moved = np.transpose(x, order)
    length = int(np.prod([x.shape[a] for a in chosen]))
    y = TRUTH[name](moved.reshape(*(x.shape[a] for a in kept), length))
    return y if name == "logsumexp" else np.transpose(y.reshape(moved.shape), np.argsort(order))


@given(st.data(), arrays(), st.sampled_from(NAMES), st.sampled_from(ON_THE_CPU))
def test_values_agree_with_float64(data, drawn, name, impl):
    _, x = drawn
    axis = data.draw(axes(x.ndim))
    before = float64(x).copy()
    got = FUNCTIONS[name](x, axis, impl=impl)
    # Half precision is rounded once; |m| may reach 100, and softmax's exponent with it.
    allowed = {"float64": 600, "float32": 600}.get(str(x.dtype).rsplit(".", 1)[-1], 1)
    close(
        got, over(name, before, axis), allowed if name == "softmax" else min(allowed, 8), atol=100 * eps(x.dtype) * 1e-2
    )
    assert np.array_equal(float64(x), before)


@given(st.data(), arrays(), st.sampled_from(["softmax", "log_softmax"]), st.sampled_from(ON_THE_CPU))
def test_out_holds_what_would_have_been_returned(data, drawn, name, impl):
    kind, x = drawn
    axis = data.draw(axes(x.ndim))
    out = make(kind, np.full(x.shape, np.nan), str(x.dtype).rsplit(".", 1)[-1])
    if data.draw(st.booleans()):
        out = out.T if kind == "numpy" else out.mT.contiguous().mT if out.ndim > 1 else out
        out = out.T if kind == "numpy" else out
    assert FUNCTIONS[name](x, axis, out=out, impl=impl) is out
    assert same_bits(out, FUNCTIONS[name](x, axis, impl=impl))


@given(st.data(), arrays(dtypes=("float32", "float64")), st.sampled_from(NAMES), st.sampled_from(ON_THE_CPU))
def test_leaving_elements_out_is_the_same_as_minus_infinity(data, drawn, name, impl):
    kind, x = drawn
    axis = data.draw(axes(x.ndim))
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=x.shape[-1], max_size=x.shape[-1])), dtype=bool)
    where = torch.from_numpy(keep) if kind == "torch" else keep
    got = FUNCTIONS[name](x, axis, where=where, impl=impl)
    masked = np.where(keep, x, -INF) if kind == "numpy" else torch.where(where, x, -INF)
    masked = masked.astype(x.dtype) if kind == "numpy" else masked
    want = float64(FUNCTIONS[name](masked, axis, impl=impl))
    if name != "logsumexp":
        nothing = 0.0 if name == "softmax" else -INF
        want = np.where(np.broadcast_to(keep, want.shape), want, nothing)
    close(got, want, 2, atol=float(eps(x.dtype)))


@given(
    st.data(),
    arrays(kinds=("torch",), dtypes=("float32", "float64"), numbers=st.floats(-30, 30, width=16)),
    st.sampled_from(NAMES),
    st.sampled_from(ON_THE_CPU),
)
def test_gradients_agree_with_float64_for_any_incoming_one(data, drawn, name, impl):
    _, x = drawn
    axis = data.draw(axes(x.ndim))
    leaf, wide = x.clone().requires_grad_(), x.double().requires_grad_()
    y = FUNCTIONS[name](leaf, axis, impl=impl)
    chosen = tuple(range(x.ndim)) if axis is None else tuple(np.atleast_1d(axis))
    lse = torch.logsumexp(wide, chosen, keepdim=name != "logsumexp")
    truth = {"logsumexp": lambda: lse, "log_softmax": lambda: wide - lse, "softmax": lambda: (wide - lse).exp()}[name]()
    g = torch.linspace(-1, 2, max(y.numel(), 1))[: y.numel()].reshape(y.shape)
    g = g.mT.contiguous().mT if g.ndim > 1 and data.draw(st.booleans()) else g
    (dx,) = torch.autograd.grad(y, leaf, g.to(y.dtype))
    (want,) = torch.autograd.grad(truth, wide, g.double())
    close(dx, want, 128, atol=64 * eps(x.dtype))


@given(arrays(kinds=("numpy",), dtypes=("float64",), numbers=st.floats(-700, 700)), st.floats(-1e4, 1e4))
def test_a_constant_added_to_everything_changes_no_probability(drawn, constant):
    _, x = drawn
    shifted = x + constant
    if x.size:
        close(osm.softmax(shifted, None), osm.softmax(shifted - constant, None), 1e5, atol=1e-11)
        assert abs(osm.logsumexp(shifted) - osm.logsumexp(x) - constant) <= 1e-11

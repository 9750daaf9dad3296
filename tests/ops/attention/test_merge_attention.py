"""Merging partial results of attention: exact, in any number and order, empty ones included."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.arrays import INF, NAN, float64, make
from tests.tolerances import close, worst_ulps

import online_softmax as osm


def whole(scores, values):
    """Attention over all keys in float64, and its log-sum-exp."""
    m = scores.max(-1, initial=-INF)
    e = np.exp(scores - np.where(np.isfinite(m), m, 0.0)[..., None])
    s = e.sum(-1)
    with np.errstate(all="ignore"):
        return np.where(s[..., None] == 0, 0.0, e @ values / s[..., None]), m + np.where(s == 0, 0.0, np.log(s))


def parts(scores, values, borders):
    return [whole(scores[..., a:b], values[a:b]) for a, b in itertools.pairwise(borders)]


@given(st.integers(1, 6), st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 16, 130]))
def test_any_split_in_any_order_is_the_whole(count, seed, size):
    rng = np.random.default_rng(seed)
    scores, values = rng.normal(size=(5, 12)) * 4, rng.normal(size=(12, size))
    borders = [0, *sorted(rng.integers(0, 13, count - 1)), 12]
    pieces = parts(scores, values, borders)
    order = rng.permutation(count)
    for impl, kind in itertools.product(("reference", "auto"), ("numpy", "torch")):
        outs, lses = ([make(kind, pieces[i][which], "float32") for i in order] for which in (0, 1))
        out, lse = osm.merge_attention(outs, lses, impl=impl)
        exact, exact_lse = whole(scores, values)
        assert worst_ulps(out, exact, np.abs(values).max()) <= 4
        assert worst_ulps(lse, exact_lse, 4.0) <= 4
        left = osm.merge_attention(outs[:1], lses[:1], impl=impl)
        for other in zip(outs[1:], lses[1:], strict=True):
            left = osm.merge_attention([left.out, other[0]], [left.lse, other[1]], impl=impl)
        assert worst_ulps(left.out, exact, np.abs(values).max()) <= 8


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("count", [1, 2, 8, 70])
def test_every_dtype_and_count_rounds_once(dtype, count, impl):
    rng = np.random.default_rng(count)
    outs = [make("torch", rng.normal(size=(3, 4, 5)), dtype) for _ in range(count)]
    lses = [make("torch", rng.normal(size=(3, 4)) * 3, "float64" if dtype == "float64" else "float32") for _ in outs]
    out, lse = osm.merge_attention(outs, lses, impl=impl)
    logs = np.stack([float64(each) for each in lses])
    weights = np.exp(logs - logs.max(0))
    want = (weights[..., None] * np.stack([float64(each) for each in outs])).sum(0) / weights.sum(0)[..., None]
    assert out.dtype == outs[0].dtype
    assert lse.dtype == lses[0].dtype
    assert worst_ulps(out, want, 1.0) <= (1.0 if dtype in ("float16", "bfloat16") else 4.0)
    close(lse, logs.max(0) + np.log(weights.sum(0)), 4, atol=1e-6 if dtype != "float64" else 1e-15)


def test_two_empty_results_give_the_empty_one(kind, impl):
    nothing, none = make(kind, np.full((3, 4), NAN)), make(kind, np.full(3, -INF))
    out, lse = osm.merge_attention([nothing, nothing], [none, none], impl=impl)
    assert (float64(out) == 0).all()
    assert (float64(lse) == -INF).all()


def test_an_empty_result_changes_nothing_whatever_its_out_holds(kind, impl):
    some = make(kind, np.arange(12.0).reshape(3, 4)), make(kind, [0.5, -2.0, 300.0])
    empty = make(kind, np.full((3, 4), NAN)), make(kind, np.full(3, -INF))
    for pair in ([some, empty], [empty, some]):
        out, lse = osm.merge_attention([p[0] for p in pair], [p[1] for p in pair], impl=impl)
        assert (float64(out) == float64(some[0])).all()
        assert (float64(lse) == float64(some[1])).all()


def test_rows_may_differ_in_which_result_is_empty(kind, impl):
    a, b = (make(kind, np.full((2, 3), x)) for x in (1.0, 2.0))
    out, lse = osm.merge_attention([a, b], [make(kind, [-INF, 0.0]), make(kind, [0.0, -INF])], impl=impl)
    assert float64(out)[:, 0].tolist() == [2.0, 1.0]
    assert float64(lse).tolist() == [0.0, 0.0]


def test_nan_and_plus_infinity(kind, impl):
    outs = [make(kind, np.full((3, 2), x)) for x in (1.0, 3.0, 8.0)]
    lses = [make(kind, x) for x in ([NAN, INF, -INF], [INF, INF, INF], [0.0, 0.0, 0.0])]
    out, lse = osm.merge_attention(outs, lses, impl=impl)
    assert np.isnan(float64(out)[0]).all()
    assert np.isnan(float64(lse)[0])
    assert float64(out)[1:, 0].tolist() == [2.0, 3.0]
    assert float64(lse)[1:].tolist() == [INF, INF]


@pytest.mark.parametrize("gap", [0.0, 90.0, -90.0, 1e4, -1e30])
def test_results_of_any_distance(gap, impl):
    a, b = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 5.0]])
    out, lse = osm.merge_attention([a, b], [torch.tensor([0.0]), torch.tensor([gap])], impl=impl)
    share = 1.0 / (1.0 + np.exp(-np.clip(gap, -700, 700)))
    close(out, float64(a) * (1 - share) + float64(b) * share, 4)
    close(lse, [np.logaddexp(0.0, gap)], 4, atol=1e-7)


@pytest.mark.parametrize("stacked", ["lists", "outs", "lses", "both"])
def test_gradients(stacked, impl):
    outs = torch.randn(3, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    lses = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)

    def merged(outs, lses):
        outs = outs if stacked in ("outs", "both") else list(outs.unbind(0))
        lses = lses if stacked in ("lses", "both") else list(lses.unbind(0))
        return tuple(osm.merge_attention(outs, lses, impl=impl))

    assert torch.autograd.gradcheck(merged, (outs, lses))
    assert torch.autograd.gradgradcheck(merged, (outs, lses))


def test_gradients_around_empty_results_are_zero_not_nan(impl):
    outs = torch.tensor([[[NAN, NAN]], [[1.0, 2.0]]], requires_grad=True)
    lses = torch.tensor([[-INF], [0.5]], requires_grad=True)
    out, lse = osm.merge_attention(outs, lses, impl=impl)
    (out.sum() + lse.sum()).backward()
    assert outs.grad.tolist() == [[[0.0, 0.0]], [[1.0, 1.0]]]
    assert lses.grad.tolist() == [[0.0], [1.0]]


def test_only_the_wanted_gradients(impl):
    outs = [torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)]
    lses = [torch.randn(3, requires_grad=True), torch.randn(3)]
    osm.merge_attention(outs, lses, impl=impl).out.sum().backward()
    assert outs[1].grad is not None
    assert lses[0].grad is not None
    assert outs[0].grad is None


def test_inputs_of_any_layout_are_not_modified(impl):
    wide = torch.randn(4, 7, 6)
    outs = [wide[:, ::2, 1:5].transpose(0, 1), wide[:, 1::2, :4].transpose(0, 1).expand(-1, -1, 4)[:4]]
    outs[1] = torch.randn(4, 4, 4).transpose(0, 2)
    lses = [torch.randn(4, 4).T, torch.randn(4, 1).expand(4, 4)]
    before = [each.clone() for each in (*outs, *lses)]
    got = osm.merge_attention(outs, lses, impl=impl)
    assert all(torch.equal(a, b) for a, b in zip(before, (*outs, *lses), strict=True))
    torch.testing.assert_close(got.out, osm.merge_attention(before[:2], before[2:], impl="reference").out)


def test_compiles_into_one_graph(impl):
    outs, lses = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    compiled = torch.compile(lambda o, s: osm.merge_attention(o, s, impl=impl).out, fullgraph=True, backend="aot_eager")
    got = compiled(outs, lses)
    want = osm.merge_attention(outs, lses).out
    torch.testing.assert_close(got, want)
    pairs = zip(
        torch.autograd.grad(got.sum(), (outs, lses)), torch.autograd.grad(want.sum(), (outs, lses)), strict=True
    )
    for a, b in pairs:
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("outs", "lses", "message"),
    [
        ([], [], "outs is empty"),
        ([np.zeros((2, 3))], [np.zeros(2), np.zeros(2)], "wanted as many"),
        ([np.zeros((2, 3)), np.zeros((2, 4))], [np.zeros(2)] * 2, r"outs\[1\] has shape \(2, 4\)"),
        ([np.zeros((2, 3))], [np.zeros(3)], r"lses\[0\] has shape \(3,\), .*wanted shape \(2,\)"),
        ([np.zeros((2, 3))], [torch.zeros(2)], "wanted one library"),
        ([np.zeros((2, 3), complex)], [np.zeros(2)], "complex128"),
    ],
)
def test_arguments_that_do_not_fit(outs, lses, message):
    with pytest.raises((TypeError, ValueError), match=message):
        osm.merge_attention(outs, lses)


def test_transforms_are_refused():
    with pytest.raises(NotImplementedError, match="vmap"):
        torch.vmap(lambda o, s: osm.merge_attention(o, s).out)(torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4))

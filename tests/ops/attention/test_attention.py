"""Attention tile by tile equals attention over the whole, for every shape, mask and dtype."""

import itertools

import numpy as np
import pytest
import torch
from tests.arrays import INF, NAN, float64, make, random, same_bits
from tests.tolerances import eps, worst_ulps

import online_softmax as osm


def exact(q, k, v, mask=None, causal=False, scale=None):
    """(out, lse) in float64 from the whole matrix of scores."""
    q, k, v = (float64(x) for x in (q, k, v))
    group = q.shape[-3] // k.shape[-3]
    k, v = np.repeat(k, group, -3), np.repeat(v, group, -3)
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        mask = np.asarray(mask)
        scores = np.where(mask, scores, -INF) if mask.dtype == bool else scores + mask
    if causal:
        queries, keys = scores.shape[-2:]
        scores = np.where(np.tri(queries, keys, keys - queries, dtype=bool), scores, -INF)
    m = scores.max(-1, initial=-INF)
    e = np.exp(scores - np.where(np.isfinite(m), m, 0.0)[..., None])
    s = e.sum(-1)
    with np.errstate(divide="ignore"):
        return e @ v / np.where(s == 0, 1.0, s)[..., None], m + np.log(np.where(s == 0, 1.0, s))


def inputs(kind, heads=4, key_heads=2, queries=33, keys=70, size=16, dtype="float32", seed=0):
    shapes = (2, heads, queries, size), (2, key_heads, keys, size), (2, key_heads, keys, 8)
    return [make(kind, random(shape, seed + i, 1.0), dtype) for i, shape in enumerate(shapes)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize(("queries", "keys"), [(33, 70), (50, 20), (1, 40), (40, 1), (300, 600), (0, 3), (3, 0)])
def test_equals_the_whole(kind, impl, heads, key_heads, queries, keys, causal):
    q, k, v = inputs(kind, heads, key_heads, queries, keys)
    for block in (None, 16) if keys < 100 else (None,):
        out, lse = osm.attention(q, k, v, causal=causal, return_lse=True, block=block, impl=impl)
        want, want_lse = exact(q, k, v, causal=causal)
        assert worst_ulps(out, want, np.abs(float64(v)).max(initial=0.0)) <= 4
        assert worst_ulps(lse, want_lse, 4.0) <= 8


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes_round_once(kind, impl, dtype):
    if kind == "numpy" and dtype == "bfloat16":
        pytest.skip("NumPy has no bfloat16 of its own")
    q, k, v = inputs(kind, dtype=dtype)
    out, lse = osm.attention(q, k, v, return_lse=True, impl=impl)
    want, want_lse = exact(q, k, v)
    assert out.dtype == q.dtype
    assert worst_ulps(out, want, 1.0) <= (16 if dtype == "float64" else 1)
    assert str(lse.dtype).endswith("64" if dtype == "float64" else "32")
    assert worst_ulps(lse, want_lse, 4.0) <= 8


def test_blocks_and_their_order_are_the_laws_of_the_state(impl):
    q, k, v = inputs("torch", 2, 2, 9, 64)
    whole = osm.attention(q, k, v, return_lse=True, impl=impl)
    for borders in ([0, 64], [0, 1, 64], [0, 20, 20, 50, 64]):
        pieces = [
            osm.attention(q, k[..., a:b, :], v[..., a:b, :], return_lse=True, impl=impl)
            for a, b in itertools.pairwise(borders)
        ]
        for order in (pieces, pieces[::-1]):
            out, lse = osm.merge_attention([p[0] for p in order], [p[1] for p in order], impl=impl)
            assert worst_ulps(out, float64(whole[0]), v.abs().max().item()) <= 4
            assert worst_ulps(lse, float64(whole[1]), 4.0) <= 4


MASKS = {
    "a bool row a query": np.random.default_rng(0).random((33, 70)) > 0.3,
    "keys of padding": np.arange(70) < np.array([50, 70])[:, None, None, None],
    "numbers that are added": np.random.default_rng(1).normal(size=(4, 33, 70)),
    "numbers with -inf": np.where(np.random.default_rng(2).random((33, 70)) > 0.5, 0.5, -INF),
    "one query sees nothing": np.arange(33)[:, None] != 5 + np.zeros((1, 70)),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(kind, impl, name):
    mask = MASKS[name]
    given = torch.as_tensor(mask) if kind == "torch" else mask
    q, k, v = inputs(kind)
    out, lse = osm.attention(q, k, v, mask=given, causal=True, return_lse=True, block=32, impl=impl)
    want, want_lse = exact(q, k, v, mask, True)
    assert worst_ulps(out, want, np.abs(float64(v)).max()) <= 4
    assert worst_ulps(lse, want_lse, 4.0) <= 8
    if name == "one query sees nothing":
        assert (float64(out)[:, :, 5] == 0).all()
        assert (float64(lse)[:, :, 5] == -INF).all()


def test_what_a_mask_hides_may_hold_anything(kind, impl):
    q, k, v = inputs(kind)
    clean = exact(q, k[:, :, :60], v[:, :, :60])[0]
    k[:, :, 60:], v[:, :, 60:] = NAN, INF
    for hidden in (np.arange(70) < 60, np.where(np.arange(70) < 60, 0.0, -INF)):
        mask = torch.as_tensor(hidden) if kind == "torch" else hidden
        out = osm.attention(q, k, v, mask=mask, block=16, impl=impl)
        assert worst_ulps(out, clean, np.abs(float64(v)[:, :, :60]).max()) <= 4


def test_nan_stays_in_its_row(kind, impl):
    q, k, v = inputs(kind)
    q[0, 1, 2] = NAN
    out, lse = osm.attention(q, k, v, return_lse=True, impl=impl)
    nan = np.zeros((2, 4, 33), bool)
    nan[0, 1, 2] = True
    assert (np.isnan(float64(lse)) == nan).all()
    assert (np.isnan(float64(out)) == nan[..., None]).all()


def test_scores_far_from_zero(impl):
    q, k, v = (torch.randn(1, 1, 8, 4, dtype=torch.float64) for _ in range(3))
    scores = q @ k.mT * 0.5
    got = osm.attention(q, k, v, mask=torch.full((8, 8), 2.0**40, dtype=torch.float64), impl=impl)
    want = torch.softmax((scores + 2.0**40) - 2.0**40, -1) @ v
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_gradients(impl, causal, mask):
    q, k, v = (x.requires_grad_() for x in inputs("torch", 2, 1, 3, 7, 2, "float64"))
    given = None
    if mask == "bool":
        given = torch.as_tensor(np.arange(7) != 3)
    elif mask == "float":
        given = torch.randn(2, 1, 7, dtype=torch.float64, requires_grad=True)

    def call(q, k, v, mask):
        return osm.attention(q, k, v, mask=mask, causal=causal, return_lse=True, block=3, impl=impl)

    assert torch.autograd.gradcheck(call, (q, k, v, given))


def test_gradients_of_a_fully_masked_query_are_zero(impl):
    q, k, v = (x.requires_grad_() for x in inputs("torch", 2, 2, 6, 4))
    out, lse = osm.attention(q, k, v, causal=True, return_lse=True, impl=impl)
    (out.sum() + lse[..., 2:].sum()).backward()
    assert (q.grad[:, :, :2] == 0).all()
    assert all(torch.isfinite(x.grad).all() for x in (q, k, v))


def test_gradients_over_many_tiles_and_threads(impl):
    q, k, v = (torch.randn(1, heads, 600, 8, requires_grad=True) for heads in (4, 2, 2))
    up = torch.randn(1, 4, 600, 8)
    got = torch.autograd.grad(osm.attention(q, k, v, causal=True, impl=impl), (q, k, v), up)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    want = torch.autograd.grad(
        torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=True, enable_gqa=True), wide, up.double()
    )
    for a, b in zip(got, want, strict=True):
        assert (a - b).abs().max() <= 32 * eps(torch.float32) * b.abs().max()


def test_the_number_of_threads_changes_no_bit():
    q, k, v = (torch.randn(1, 4, 700, 32) for _ in range(3))
    before = torch.get_num_threads()
    results = []
    for threads in (2, 1):
        torch.set_num_threads(threads)
        results.append(osm.attention(q, k, v, causal=True))
    torch.set_num_threads(before)
    assert same_bits(*results)
    assert torch.get_num_threads() == before


def test_second_derivatives_are_refused():
    q, k, v = (x.requires_grad_() for x in inputs("torch", 2, 2, 3, 4))
    (grad,) = torch.autograd.grad(osm.attention(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        grad.sum().backward()


def test_compiles_into_one_graph(impl):
    q, k, v = (x.requires_grad_() for x in inputs("torch", 2, 1, 5, 6))
    compiled = torch.compile(
        lambda q, k, v: osm.attention(q, k, v, causal=True, impl=impl), fullgraph=True, backend="aot_eager"
    )
    got, want = compiled(q, k, v), osm.attention(q, k, v, causal=True)
    torch.testing.assert_close(got, want)
    for a, b in zip(torch.autograd.grad(got.sum(), (q, k, v)), torch.autograd.grad(want.sum(), (q, k, v)), strict=True):
        torch.testing.assert_close(a, b)


def test_autocast_multiplies_in_its_dtype_and_inference_mode_works(impl):
    q, k, v = (torch.randn(1, 4, 550, 8) for _ in range(3))
    with torch.autocast("cpu", torch.bfloat16):
        assert osm.attention(q, k, v, impl=impl).dtype == torch.bfloat16
    want = osm.attention(q, k, v, impl=impl)
    with torch.inference_mode():
        assert same_bits(osm.attention(q, k, v, impl=impl).clone(), want)


def test_two_axes_are_one_head(kind, impl):
    q, k, v = (x[0, 0] for x in inputs(kind))
    out, lse = osm.attention(q, k, v, return_lse=True, impl=impl)
    assert tuple(out.shape) == (33, 8)
    assert tuple(lse.shape) == (33,)


@pytest.mark.parametrize("shape", [(0, 5, 6), (0, 4, 5, 6), (2, 0, 5, 6), (2, 4, 0, 6), (0, 6)])
def test_no_batches_heads_or_queries_are_an_empty_result(kind, impl, shape):
    q = make(kind, np.zeros(shape))
    served = [make(kind, np.ones((*shape[:-3], 4, 5, 6) if len(shape) > 2 else (5, 6))) for _ in range(2)]
    for k, v in ((q, q), served):
        if kind == "torch":
            q, k, v = (x.requires_grad_() for x in (q, k, v))
        out, lse = osm.attention(q, k, v, causal=True, return_lse=True, impl=impl)
        assert tuple(out.shape) == shape
        assert tuple(lse.shape) == shape[:-1]
        if kind == "torch":
            assert all((x == 0).all() for x in torch.autograd.grad(out.sum() + lse.sum(), (q, k, v)))


@pytest.mark.parametrize("axes", [4, 3, 2])
def test_other_array_libraries(axes):
    xp = pytest.importorskip("array_api_strict")
    arrays = [x[(0,) * (4 - axes)] for x in inputs("numpy")]
    q, k, v = (xp.asarray(x) for x in arrays)
    mask = np.random.default_rng(0).random((33, 70)) > 0.3
    out, lse = osm.attention(q, k, v, causal=True, mask=xp.asarray(mask), return_lse=True, block=16)
    want, want_lse = exact(*(x if axes > 2 else x[None] for x in arrays), mask=mask, causal=True)
    assert worst_ulps(np.asarray(out), want.reshape(out.shape), 4.0) <= 4
    for outs, lses in (([out, out], [lse, lse]), (xp.stack([out, out]), xp.stack([lse, lse]))):
        merged = osm.merge_attention(outs, lses)
        np.testing.assert_allclose(np.asarray(merged.lse), want_lse.reshape(lse.shape) + np.log(2.0), rtol=1e-5)
    if axes == 3:
        assert osm.attention(q[:0, ...], k, v).shape == (0, *out.shape[1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.zeros(5)}, r"q has shape \(5,\).*; wanted \(…, heads, length, head size\)"),
        ({"q": torch.zeros(33, 16)}, r"k has .*\(2, 2, 70, 16\).*, q .*\(33, 16\).*as many axes in k"),
        ({"k": torch.zeros(70, 16)}, r"k has .*\(70, 16\).*as many axes in k"),
        ({"v": torch.zeros(8)}, r"v has .*\(8,\).*as many axes in v"),
        ({"k": torch.zeros(2, 0, 70, 16)}, "heads dividing 4"),
        ({"k": torch.zeros(2, 3, 70, 16)}, "heads dividing 4"),
        ({"k": torch.zeros(2, 2, 70, 15)}, r"wanted \(2, 'heads', 'length', 16\)"),
        ({"v": torch.zeros(2, 2, 69, 8)}, "as many keys as k"),
        ({"v": torch.zeros(2, 2, 70, 8, dtype=torch.float64)}, "one dtype"),
        ({"v": np.zeros((2, 2, 70, 8), np.float32)}, "one library"),
        ({"mask": torch.zeros(33, 71)}, "broadcasts to the scores"),
        ({"mask": torch.zeros(33, 70, dtype=torch.int64)}, "wanted bool"),
        ({"scale": float("nan")}, "scale is nan"),
        ({"mask": [[True]]}, "mask is a list, q a Tensor"),
        ({"scale": "half"}, "plain number"),
        ({"scale": [1.0]}, r"scale is \[1.0\]; wanted a plain number or None"),
        ({"causal": "yes"}, "causal is 'yes'; wanted True or False"),
        ({"return_lse": 1}, "return_lse is 1; wanted True or False"),
        ({"block": 0}, "block is 0"),
        ({"block": 2.5}, "block is 2.5"),
        ({"impl": "fast"}, "impl is 'fast'"),
    ],
)
def test_arguments_that_do_not_fit(change, message):
    q, k, v = inputs("torch")
    with pytest.raises((TypeError, ValueError), match=message):
        osm.attention(**{"q": q, "k": k, "v": v} | change)


@pytest.mark.parametrize(
    ("word", "name"),
    [
        *(("query", "q"), ("key", "k"), ("value", "v"), ("attn_mask", "mask"), ("is_causal", "causal")),
        ("softmax_scale", "scale"),
    ],
)
def test_other_libraries_words_for_an_argument_are_answered(word, name, kind):
    with pytest.raises(TypeError, match=rf"attention\(\) takes {name}=, not {word}="):
        osm.attention(*inputs(kind), **{word: True})

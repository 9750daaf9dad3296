"""Losses of ordinary rows: every form of input and target, every reduction, any height, always the same bits."""

import math

import numpy as np
import pytest
import scipy.special
import torch
import torch.nn.functional as F
from tests.arrays import float64, make, random, same_bits
from tests.ops.cross_entropy.common import IGNORED, grad_of, indices, logits, probabilities, true_gradient, truth
from tests.tolerances import assert_as_accurate_as_peers, close
from tests.truth import exact_log_softmax, exact_logsumexp, exact_softmax

import online_softmax as osm

REDUCTIONS = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])


@REDUCTIONS
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_class_indices_of_every_integer_type(dtype, reduction, kind, impl):
    x, t = logits(kind=kind), indices(kind=kind, dtype=dtype)
    close(osm.cross_entropy(x, t, reduction=reduction, impl=impl), truth(x, t, reduction=reduction), 8)


@REDUCTIONS
@pytest.mark.parametrize("of_target", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("of_logits", ["float16", "bfloat16", "float32", "float64"])
def test_class_probabilities_of_every_floating_type_for_logits_of_every_other(of_logits, of_target, reduction, impl):
    x, p = logits(dtype=of_logits), probabilities(dtype=of_target)
    loss = osm.cross_entropy(x, p, reduction=reduction, impl=impl)
    close(loss, truth(x, p, reduction=reduction), 16)
    n, atol = {"float64": (32, 1e-15), "float32": (32, 1e-6)}.get(of_logits, (0.52, 1e-6))
    close(grad_of(x, p, reduction=reduction, impl=impl), true_gradient(x, p, reduction=reduction), n, atol)
    if "bfloat16" not in (of_logits, of_target):
        plain, gradient = osm.cross_entropy_with_grad(x.numpy(), p.numpy(), reduction=reduction, impl=impl)
        close(plain, loss, 4)
        close(gradient, true_gradient(x, p, reduction=reduction), n, atol)


@REDUCTIONS
def test_the_class_axis_is_axis_one(reduction, kind, impl):
    x = random((3, 5, 2, 4))
    t = np.random.default_rng(2).integers(0, 5, (3, 2, 4))
    t[0, 0, 0] = IGNORED
    w = np.array([0.5, 1.0, 2.0, 0.0, 3.0])
    rows = np.moveaxis(x, 1, -1).reshape(-1, 5)
    for options in ({}, {"label_smoothing": 0.2}):
        for weight in (None, w):
            given = None if weight is None else make(kind, weight, "float64")
            got = osm.cross_entropy(
                make(kind, x, "float64"), make(kind, t, "int64"), given, reduction=reduction, impl=impl, **options
            )
            want = truth(rows, t.reshape(-1), weight, reduction=reduction, **options)
            close(got, want.reshape(t.shape) if reduction == "none" else want, 32, atol=1e-15)


def test_probabilities_in_several_dimensions(kind, impl):
    x, p = random((2, 3, 4)), np.moveaxis(float64(probabilities(8, 3)).reshape(2, 4, 3), -1, 1)
    got = osm.cross_entropy(make(kind, x, "float64"), make(kind, p, "float64"), reduction="none", impl=impl)
    want = truth(np.moveaxis(x, 1, -1).reshape(-1, 3), np.moveaxis(p, 1, -1).reshape(-1, 3), reduction="none")
    close(got, want.reshape(2, 4), 16)


@REDUCTIONS
def test_a_single_row_without_a_batch_axis(reduction, kind, impl):
    x = make(kind, [1.0, 2.0, 0.5], "float64")
    logp, p = exact_log_softmax([1.0, 2.0, 0.5]), [0.2, 0.3, 0.5]
    close(osm.cross_entropy(x, make(kind, 1, "int64"), reduction=reduction, impl=impl), -logp[1], 4)
    want = -sum(a * b for a, b in zip(p, logp, strict=True))
    close(osm.cross_entropy(x, make(kind, p, "float64"), reduction=reduction, impl=impl), want, 4)
    assert float(osm.cross_entropy(x, make(kind, IGNORED, "int64"), reduction="none", impl=impl)) == 0.0


def test_lists_are_numpy_arrays():
    assert osm.cross_entropy([[0.0, 0.0]], [1]) == pytest.approx(math.log(2))
    assert isinstance(osm.cross_entropy([[0, 0]], [1]), np.float64)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@REDUCTIONS
def test_losses_are_float32_unless_the_logits_are_float64(reduction, dtype, impl):
    x, t = logits(200, 64, dtype), indices(200, 64)
    loss = osm.cross_entropy(x, t, reduction=reduction, impl=impl)
    assert loss.dtype == (torch.float64 if dtype == "float64" else torch.float32)
    close(loss, truth(x, t, reduction=reduction), 8, atol=1e-6 if dtype != "float64" else 1e-14)


@pytest.mark.parametrize(("width", "height"), [(3, 0), (3, 3e6), (64, 700), (1000, 0), (300, -80000)])
def test_float32_errs_no_more_than_the_better_peer_plus_two_ulp(width, height, impl):
    x = (random((1024, width), width, 4.0) + height).astype(np.float32)
    t = indices(1024, width, kind="numpy")
    tensor, target = torch.from_numpy(x), torch.from_numpy(t)
    peers = [
        F.cross_entropy(tensor, target, reduction="none"),
        -scipy.special.log_softmax(x, axis=1)[np.arange(1024), t],
    ]
    want, m = truth(x.astype(np.float64) - height, t, reduction="none"), x.max(1).astype(np.float64)
    for got in (
        osm.cross_entropy(x, t, reduction="none", impl=impl),
        osm.cross_entropy(tensor, target, reduction="none", impl=impl),
    ):
        assert_as_accurate_as_peers(got, want, m, *peers)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_loss_of_a_dominant_class_keeps_its_small_terms(dtype, kind, impl):
    for row in ([40.0, 0.0], [40.0, 3.0, -1.0], [80.0, 0.0]):
        want = exact_logsumexp([x - row[0] for x in row])
        close(osm.cross_entropy(make(kind, [row], dtype), make(kind, [0], "int64"), impl=impl), want, 4)


@pytest.mark.parametrize("height", [0.0, 2.0**20, -(2.0**20)])
def test_gaps_between_large_logits_survive_in_loss_and_gradient(height, impl):
    base = [0.0, 1.0, -2.0, 4.0, 0.5]
    x, t = torch.tensor([[b + height for b in base]]), torch.tensor([2])
    close(osm.cross_entropy(x, t, impl=impl), -exact_log_softmax(base)[2], 4)
    want = [[p - (i == 2) for i, p in enumerate(exact_softmax(base))]]
    for options in ({}, {"reduction": "none"}):
        close(grad_of(x, t, impl=impl, **options), want, 4, atol=1.2e-7)


@pytest.mark.parametrize("height", [1e4, 1e8, -1e8, 1e20, -1e36])
def test_equal_logits_cost_the_log_of_their_number_at_any_height(height, kind, impl):
    x = make(kind, [[height] * 5])
    close(osm.cross_entropy(x, make(kind, [3], "int64"), impl=impl), math.log(5), 2)
    close(osm.cross_entropy(x, make(kind, [[0.2] * 5]), impl=impl), math.log(5), 4)


def test_smoothing_over_a_wide_gap_uses_log_probabilities_not_logs_of_probabilities(kind, impl):
    x = make(kind, [[0.0, -1000.0]])
    close(osm.cross_entropy(x, make(kind, [0], "int64"), label_smoothing=0.1, impl=impl), 50.0, 4)


@pytest.mark.parametrize("width", [1, 2, 8192, 8193, 50257, 128256])
def test_vocabularies_of_every_size_with_targets_at_both_ends(width, impl):
    x = make("torch", random((3, width), width), "float32")
    t = torch.tensor([0, width - 1, width // 2])
    close(osm.cross_entropy(x, t, reduction="none", impl=impl), truth(x, t, reduction="none"), 8, atol=2e-6)
    for options in ({}, {"label_smoothing": 0.1}):
        want = true_gradient(x, t, reduction="sum", **options)
        close(grad_of(x, t, reduction="sum", impl=impl, **options), want, 16, atol=2e-7)


def test_the_mean_over_half_a_million_rows_does_not_drift(impl):
    x = torch.zeros(1 << 19, 2)
    x[:, 0] = 0.1
    t = torch.zeros(1 << 19, dtype=torch.int64)
    want = -exact_log_softmax([float(np.float32(0.1)), 0.0])[0]
    close(osm.cross_entropy(x, t, torch.full((2,), 0.1), impl=impl), want, 4)


def test_losses_of_half_precision_are_rounded_once(impl):
    for dtype in ("float16", "bfloat16"):
        x, t = logits(300, 64, dtype), indices(300, 64)
        close(osm.cross_entropy(x, t, reduction="none", impl=impl), truth(x, t, reduction="none"), 8, atol=5e-7)


def test_a_rows_loss_and_gradient_do_not_depend_on_the_rows_around_it_nor_on_the_run(impl):
    for shape in ((60, 300), (5, 20_000)):
        x, t = logits(*shape, dtype="float32"), indices(*shape)
        rows = osm.cross_entropy(x, t, reduction="none", impl=impl)
        g = grad_of(x, t, reduction="sum", impl=impl)
        assert same_bits(rows, osm.cross_entropy(x, t, reduction="none", impl=impl))
        assert same_bits(g, grad_of(x, t, reduction="sum", impl=impl))
        for i in (0, 3, 4):
            one = slice(i, i + 1)
            assert same_bits(rows[one], osm.cross_entropy(x[one], t[one], reduction="none", impl=impl))
            assert same_bits(g[one], grad_of(x[one], t[one], reduction="sum", impl=impl))


@REDUCTIONS
def test_the_same_call_gives_the_same_bits_for_any_number_of_threads(reduction, impl):
    x, t, w = logits(64, 1000, "float32"), indices(64, 1000), torch.rand(1000)
    threads, runs = torch.get_num_threads(), []
    for count in (1, 2, 1):
        torch.set_num_threads(count)
        runs.append((osm.cross_entropy(x, t, w, reduction=reduction, impl=impl), grad_of(x, t, w, impl=impl)))
    torch.set_num_threads(threads)
    for loss, gradient in runs[1:]:
        assert same_bits(loss, runs[0][0])
        assert same_bits(gradient, runs[0][1])


def test_any_layout_of_the_logits_gives_the_same_loss_and_gradient(kind, impl):
    wide = make(kind, random((8, 40)), "float64")
    views = [wide[:6, :5], wide[:6, ::8], wide[:5, :6].T, wide[2:, 3:8], wide[::2, 5:10]]
    if kind == "numpy":
        views += [wide[::-1, ::-1][:6, :5], np.asfortranarray(wide[:6, :5]), wide[:6, :5].astype(">f8")]
        views += [np.broadcast_to(wide[:1, :5], (6, 5))]
    else:
        views += [wide[:1, :5].expand(6, 5), wide[:6, :1].expand(6, 5)]
    for x in views:
        t = indices(len(x), 5, kind=kind)
        before = float64(x).copy()
        close(osm.cross_entropy(x, t, reduction="none", impl=impl), truth(x, t, reduction="none"), 16, atol=1e-15)
        _, gradient = osm.cross_entropy_with_grad(x, t, impl=impl)
        close(gradient, true_gradient(x, t), 16, atol=1e-15)
        assert np.array_equal(float64(x), before)


def test_targets_and_weights_of_any_stride(kind, impl):
    x = logits(kind=kind)
    t, w = indices(kind=kind), make(kind, [0.5, 1.0, 2.0, 0.25, 3.0], "float64")
    spread_t, spread_w = make(kind, np.zeros(18), "int64"), make(kind, np.zeros(10), "float64")
    spread_t[::3], spread_w[::2] = t, w
    close(osm.cross_entropy(x, spread_t[::3], spread_w[::2], impl=impl), osm.cross_entropy(x, t, w, impl=impl), 0)
    p = probabilities(5, 6, kind=kind).T
    close(osm.cross_entropy(x, p, impl=impl), truth(x, p), 16)


def test_the_negative_unreduced_loss_is_the_log_probability_of_the_chosen_tokens(impl):
    x, t = logits(7, 11), indices(7, 11)
    chosen = torch.log_softmax(x, 1).gather(1, t[:, None])[:, 0]
    close(-osm.cross_entropy(x, t, reduction="none", impl=impl), chosen, 8)

"""Rows that hold NaN or infinities, rows without mass, ignored rows, batches of nothing: losses and gradients."""

import math

import numpy as np
import pytest
import torch
from tests.arrays import INF, NAN, float64, make
from tests.ops.cross_entropy.common import IGNORED, grad_of, true_gradient, truth
from tests.tolerances import close
from tests.truth import exact_log_softmax, exact_softmax

import online_softmax as osm

REDUCTIONS = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
FINITE = [0.0, 1.0, -2.0]
WITHOUT_LOSS = {
    "nan": [NAN, 0.0, 1.0],
    "nan and +inf": [INF, NAN, 1.0],
    "nan and -inf": [-INF, NAN, -INF],
    "nothing but nan": [NAN, NAN, NAN],
    "all -inf": [-INF, -INF, -INF],
    "+inf": [0.0, INF, 1.0],
    "+inf in the target": [INF, 1.0, 2.0],
    "+inf twice": [INF, INF, 0.0],
}


@pytest.mark.parametrize("row", WITHOUT_LOSS.values(), ids=WITHOUT_LOSS.keys())
def test_a_row_without_a_distribution_is_nan_in_loss_and_gradient_and_spoils_no_other(row, kind, impl):
    x, t = make(kind, [FINITE, row, FINITE], "float64"), make(kind, [1, 0, 2], "int64")
    loss = float64(osm.cross_entropy(x, t, reduction="none", impl=impl))
    assert np.isnan(loss[1])
    close(loss[[0, 2]], [-exact_log_softmax(FINITE)[1], -exact_log_softmax(FINITE)[2]], 4)
    for reduction in ("none", "sum", "mean"):
        gradient = float64(osm.cross_entropy_with_grad(x, t, reduction=reduction, impl=impl)[1])
        assert np.isnan(gradient[1]).all()
        assert np.isfinite(gradient[[0, 2]]).all()
    assert math.isnan(float(osm.cross_entropy(x, t, impl=impl)))


@pytest.mark.parametrize("row", WITHOUT_LOSS.values(), ids=WITHOUT_LOSS.keys())
def test_autograd_gives_the_same_nan_rows(row, impl):
    x, t = torch.tensor([FINITE, row], dtype=torch.float64), torch.tensor([1, 0])
    for reduction in ("none", "sum", "mean"):
        g = grad_of(x, t, reduction=reduction, impl=impl)
        assert torch.isnan(g[1]).all()
        assert torch.isfinite(g[0]).all()


def test_a_nan_row_stays_nan_even_if_its_targets_class_weighs_nothing(impl):
    x, t, w = torch.tensor([[NAN, 0.0, 1.0]]), torch.tensor([1]), torch.tensor([1.0, 0.0, 1.0])
    assert torch.isnan(osm.cross_entropy(x, t, w, reduction="none", impl=impl)).all()


@REDUCTIONS
def test_a_masked_class_takes_no_part_and_has_exactly_no_gradient(reduction, kind, impl):
    x, t = make(kind, [[0.0, -INF, 1.0], [-INF, 2.0, -INF]], "float64"), make(kind, [2, 1], "int64")
    want = np.array([-exact_log_softmax([0.0, 1.0])[1], 0.0])
    loss = osm.cross_entropy(x, t, reduction=reduction, impl=impl)
    close(loss, {"none": want, "sum": want.sum(), "mean": want.mean()}[reduction], 4)
    gradient = float64(osm.cross_entropy_with_grad(x, t, reduction=reduction, impl=impl)[1])
    assert gradient[0, 1] == gradient[1, 0] == gradient[1, 2] == 0.0
    assert np.isfinite(gradient).all()


def test_mass_on_a_masked_class_costs_plus_infinity_with_a_finite_gradient(kind, impl):
    x, t = make(kind, [[0.0, -INF, 1.0], FINITE], "float64"), make(kind, [1, 0], "int64")
    loss = float64(osm.cross_entropy(x, t, reduction="none", impl=impl))
    assert loss[0] == INF
    assert np.isfinite(loss[1])
    assert float(osm.cross_entropy(x, t, impl=impl)) == INF
    gradient = float64(osm.cross_entropy_with_grad(x, t, reduction="sum", impl=impl)[1])
    p = exact_softmax([0.0, 1.0])
    close(gradient[0], [p[0], -1.0, p[1]], 4)


def test_smoothing_over_a_masked_class_is_plus_infinity_not_nan(kind, impl):
    x, t = make(kind, [[-INF, 0.0, 0.0]]), make(kind, [1], "int64")
    assert float(osm.cross_entropy(x, t, label_smoothing=0.1, impl=impl)) == INF


def test_smoothing_over_a_masked_class_of_weight_zero_is_finite(kind, impl):
    x, t, w = (
        make(kind, [[-INF, 0.0, 1.0]], "float64"),
        make(kind, [1], "int64"),
        make(kind, [0.0, 1.0, 1.0], "float64"),
    )
    logp = exact_log_softmax([0.0, 1.0])
    want = 0.9 * -logp[0] + 0.1 / 3 * -(logp[0] + logp[1])
    close(osm.cross_entropy(x, t, w, label_smoothing=0.1, reduction="sum", impl=impl), want, 8)


def test_a_target_of_weight_zero_adds_exactly_nothing_even_on_a_masked_class(kind, impl):
    x, t, w = make(kind, [[-INF, 0.0, 1.0], FINITE]), make(kind, [0, 0], "int64"), make(kind, [0.0, 1.0, 1.0])
    assert float64(osm.cross_entropy(x, t, w, reduction="none", impl=impl)).tolist() == [0.0, 0.0]
    gradient = osm.cross_entropy_with_grad(x, t, w, reduction="sum", impl=impl)[1]
    assert (float64(gradient) == 0).all()


def test_probability_zero_on_a_masked_class_adds_nothing(kind, impl):
    x, p = make(kind, [[-INF, 0.0, math.log(3.0)]], "float64"), make(kind, [[0.0, 0.5, 0.5]], "float64")
    loss, gradient = osm.cross_entropy_with_grad(x, p, impl=impl)
    close(loss, 0.5 * math.log(4.0) + 0.5 * math.log(4.0 / 3.0), 4)
    close(gradient, [[0.0, -0.25, 0.25]], 8)


def test_probabilities_need_not_sum_to_one(kind, impl):
    x = make(kind, [FINITE, FINITE, FINITE], "float64")
    p = make(kind, [[0.0, 0.0, 0.0], [2.0, 1.0, 0.5], [-1.0, 0.0, 1.0]], "float64")
    close(osm.cross_entropy(x, p, reduction="none", impl=impl), truth(x, p, reduction="none"), 8)
    close(osm.cross_entropy_with_grad(x, p, impl=impl)[1], true_gradient(x, p), 8, 1e-16)


@REDUCTIONS
@pytest.mark.parametrize("row", [*WITHOUT_LOSS.values(), FINITE], ids=[*WITHOUT_LOSS.keys(), "finite"])
def test_an_ignored_row_is_exactly_zero_whatever_it_holds(row, reduction, kind, impl):
    x, t = make(kind, [FINITE, row, FINITE], "float64"), make(kind, [1, IGNORED, 2], "int64")
    for options in ({}, {"z_loss": 0.1, "label_smoothing": 0.2}, {"scale": 2.0, "softcap": 5.0}):
        loss, gradient = osm.cross_entropy_with_grad(x, t, reduction=reduction, impl=impl, **options)
        gradient = float64(gradient)
        assert (gradient[1] == 0).all()
        assert np.isfinite(gradient).all()
        keep = make(kind, [0, 2], "int64")
        want = truth(x[keep], t[keep], reduction=reduction, **options)
        close(loss if reduction != "none" else float64(loss)[[0, 2]], want, 8)
        if reduction == "none":
            assert float64(loss)[1] == 0.0


@REDUCTIONS
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_autograd_gives_ignored_rows_exactly_zero(reduction, dtype, impl):
    x = torch.tensor([FINITE, [NAN, INF, -INF], FINITE], dtype=dtype)
    g = grad_of(x, torch.tensor([1, IGNORED, 2]), reduction=reduction, impl=impl)
    assert (g[1] == 0).all()
    assert torch.isfinite(g).all()


def test_the_whole_range_of_float32(kind, impl):
    x, t = make(kind, [[3.4e38, -3.4e38, 0.0], [1e30, 2e30, -1e30]]), make(kind, [0, 1], "int64")
    loss, gradient = osm.cross_entropy_with_grad(x, t, reduction="none", impl=impl)
    assert float64(loss).tolist() == [0.0, 0.0]
    assert (float64(gradient) == 0).all()


class TestNothing:
    """No rows, no classes."""

    def test_an_empty_batch(self, kind, impl):
        for target in (make(kind, np.zeros(0), "int64"), make(kind, np.zeros((0, 7)))):
            x = make(kind, np.zeros((0, 7)))
            assert math.isnan(float(osm.cross_entropy(x, target, impl=impl)))
            assert float(osm.cross_entropy(x, target, reduction="sum", impl=impl)) == 0.0
            assert osm.cross_entropy(x, target, reduction="none", impl=impl).shape == (0,)
            for reduction in ("none", "mean", "sum"):
                gradient = osm.cross_entropy_with_grad(x, target, reduction=reduction, impl=impl)[1]
                assert tuple(gradient.shape) == (0, 7)

    def test_an_empty_batch_has_a_backward(self, impl):
        for reduction in ("none", "mean", "sum"):
            x = torch.zeros(0, 7)
            assert grad_of(x, torch.zeros(0, dtype=torch.int64), reduction=reduction, impl=impl).shape == (0, 7)

    def test_no_classes_at_all(self, kind, impl):
        x = make(kind, np.zeros((5, 0)), "float64")
        assert math.isnan(float(osm.cross_entropy(x, x, impl=impl)))
        assert float(osm.cross_entropy(x, x, reduction="sum", impl=impl)) == 0.0
        assert float64(osm.cross_entropy(x, x, reduction="none", impl=impl)).tolist() == [0.0] * 5
        assert tuple(osm.cross_entropy_with_grad(x, x, impl=impl)[1].shape) == (5, 0)

    def test_an_empty_image(self, kind, impl):
        x, t = make(kind, np.zeros((2, 3, 0, 4))), make(kind, np.zeros((2, 0, 4)), "int64")
        assert osm.cross_entropy(x, t, reduction="none", impl=impl).shape == (2, 0, 4)


def test_numpy_warns_of_nothing_on_any_row(impl):
    rows = np.array([*WITHOUT_LOSS.values(), FINITE, [0.0, -INF, 1.0]])
    with np.errstate(all="raise"):
        for dtype in (np.float16, np.float32, np.float64):
            for options in ({}, {"reduction": "none", "softcap": 3.0, "z_loss": 1.0, "label_smoothing": 0.1}):
                t = np.zeros(len(rows), np.int64)
                osm.cross_entropy_with_grad(rows.astype(dtype), t, return_aux=True, impl=impl, **options)
        osm.cross_entropy(np.zeros((2, 3)), np.array([IGNORED, IGNORED]), impl=impl)
        osm.cross_entropy(np.zeros((0, 3)), np.zeros(0, np.int64), impl=impl)

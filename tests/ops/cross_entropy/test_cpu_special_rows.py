"""The native kernels of cross-entropy on rows with NaN, infinities, ignored or missing targets, or nothing in them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.cross_entropy.cpu_cases import case

from online_softmax.ops.cross_entropy import cpu
from online_softmax.ops.cross_entropy.options import Options


@pytest.mark.parametrize("options", [Options(reduction="none"), Options(reduction="none", label_smoothing=0.1)])
@pytest.mark.parametrize("row", [[0, np.nan, 1], [np.inf, 0, 0], [-np.inf] * 3, [np.inf, np.nan, 0]])
def test_a_row_without_probabilities(instruction_set, row, options):
    x = np.array([[0, 1, 2], row, [2, 1, 0]], np.float32)
    f = cpu.forward(x, np.array([0, 1, 2]), None, None, options, aux=True)
    assert np.isnan(f.loss[1])
    assert np.isfinite(f.loss[[0, 2]]).all()
    assert f.lse_low[1] == 0
    assert f.predicted[1] == np.argmax(row)
    ones = np.ones(3, np.float32)
    gradient = cpu.backward(x, np.array([0, 1, 2]), None, f.lse, f.lse_low, f.divisors, options, ones, None)
    assert np.isnan(gradient[1]).all()
    assert np.isfinite(gradient[[0, 2]]).all()
    with_zero_weight = cpu.forward(x, np.array([0, 1, 2]), np.array([1, 0, 1], np.float32), None, options)
    assert np.isnan(with_zero_weight.loss[1])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_ignored_row_is_exactly_zero_even_with_nan(instruction_set, dtype, smoothing):
    x, target = case(6, 1100, dtype)
    x[3] = np.nan
    assert target[3] == -100
    options = Options(label_smoothing=smoothing, z_loss=0.1)
    f = cpu.forward(x, target, None, None, options, gradient=True)
    assert np.isfinite(f.loss)
    assert np.isnan(f.lse[3])
    compute = f.lse.dtype.type
    zeros = cpu.backward(x, target, None, f.lse, f.lse_low, f.divisors, options, compute(1)[...], np.zeros(6, compute))
    for gradient in (f.gradient, zeros):
        assert (gradient[3] == 0).all()
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("target", [np.full(4, -100), np.array([1, 1, -100, 1])])
def test_a_mean_divided_by_zero_is_nan_as_is_the_gradient_of_kept_rows(target):
    x, _ = case(4, 50, np.float32)
    weight = np.ones(50, np.float32)
    weight[1] = 0
    f = cpu.forward(x, target, weight, None, Options(), gradient=True)
    assert np.isnan(f.loss)
    assert (f.gradient[target == -100] == 0).all()
    assert np.isnan(f.gradient[target != -100]).all()


def test_a_class_without_mass_adds_exactly_zero_whatever_its_logit(instruction_set):
    x = np.array([[-np.inf, 0, 1.0]], np.float32)
    plain = cpu.forward(x, np.array([1]), None, None, Options(), gradient=True)
    assert np.isfinite(plain.loss)
    assert plain.gradient[0, 0] == 0
    assert cpu.forward(x, np.array([0]), None, None, Options()).loss == np.inf
    assert cpu.forward(x, np.array([1]), None, None, Options(label_smoothing=0.1)).loss == np.inf
    weight = np.array([0, 1, 1], np.float32)
    assert np.isfinite(cpu.forward(x, np.array([1]), weight, None, Options(label_smoothing=0.1)).loss)
    assert cpu.forward(x, np.array([0]), weight, None, Options(reduction="sum")).loss == 0
    probabilities = np.array([[0, 0.5, 0.5]], np.float32)
    assert np.isfinite(cpu.forward(x, probabilities, None, None, Options()).loss)


def test_a_target_outside_the_classes_reads_no_memory_and_gives_nan():
    x, _ = case(3, 10, np.float32)
    f = cpu.forward(x, np.array([0, 2**40, -5]), np.ones(10, np.float32), None, Options(reduction="none"), aux=True)
    assert np.array_equal(np.isnan(f.loss), [False, True, True])
    summed = cpu.forward(x, np.array([0, 2**40, -5]), None, None, Options(reduction="sum"), gradient=True)
    assert np.isnan(summed.gradient[1:]).all()
    assert np.isfinite(summed.gradient[0]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_loss_of_a_dominant_class_keeps_its_small_terms(instruction_set, dtype):
    x = np.full((2, 2000), -np.inf, dtype)
    x[:, 5], x[:, 1500] = 0, -40
    f = cpu.forward(x, np.array([5, 5]), None, None, Options())
    assert np.isclose(f.loss, 4.248354255291589e-18, rtol=1e-6, atol=0)


def test_no_rows_and_no_classes():
    empty = np.empty((0, 5), np.float32)
    none = np.empty(0, np.int64)
    assert cpu.forward(empty, none, None, None, Options(reduction="sum"), gradient=True).loss == 0
    assert np.isnan(cpu.forward(empty, none, None, None, Options(), gradient=True).loss)
    f = cpu.forward(
        np.empty((3, 0), np.float32), np.empty((3, 0), np.float32), None, None, Options(reduction="none"), gradient=True
    )
    assert np.array_equal(f.loss, [0, 0, 0])
    assert f.gradient.shape == (3, 0)
    assert np.isnan(cpu.forward(np.empty((3, 0), np.float32), np.empty((3, 0), np.float32), None, None, Options()).loss)

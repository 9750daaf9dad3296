"""logsumexp with factors b and with the sign of the sum, as SciPy has them."""

import math

import numpy as np
import pytest
import scipy.special
import torch
from tests.arrays import INF, NAN, float64, make, random
from tests.tolerances import close

import online_softmax as osm


def signed(kind, x, b, **options):
    value, sign = osm.logsumexp(make(kind, x, "float64"), b=make(kind, b, "float64"), return_sign=True, **options)
    return float64(value), float64(sign)


def test_negative_factors_give_a_sign_and_nan_without_one(kind):
    value, sign = signed(kind, [0.0, 1.0], [1.0, -1.0])
    close(value, math.log(math.e - 1), 4)
    assert sign == -1
    assert math.isnan(float(osm.logsumexp(make(kind, [0.0, 1.0]), b=make(kind, [1.0, -1.0]))))


def test_terms_that_cancel_leave_minus_infinity_and_sign_zero(kind):
    assert signed(kind, [2.0, 2.0], [1.0, -1.0]) == (-INF, 0.0)
    assert float(osm.logsumexp(make(kind, [2.0, 2.0]), b=make(kind, [1.0, -1.0]))) == -INF


@pytest.mark.parametrize("other", [INF, NAN, -INF, 1e4])
def test_a_factor_of_zero_removes_its_element_whatever_it_is(other, kind):
    close(osm.logsumexp(make(kind, [other, 1.0], "float64"), b=make(kind, [0.0, 2.0], "float64")), 1 + math.log(2), 4)
    assert signed(kind, [other, other], [0.0, 0.0]) == (-INF, 0.0)


def test_factors_broadcast_to_the_array(kind):
    x = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    want = [math.log(2 * math.exp(i) + 0.5 * math.exp(i + 3)) for i in (1, 2, 3)]
    close(osm.logsumexp(make(kind, x, "float64"), 0, b=make(kind, [[2.0], [0.5]], "float64")), want, 8)
    close(osm.logsumexp(make(kind, x, "float64"), 0, b=3.0), np.log(3 * np.exp(x).sum(0)), 8)
    close(osm.logsumexp(make(kind, x, "float64"), 0, b=[[2], [0]]), np.log(2) + np.array(x[0]), 8)


def test_infinite_elements_carry_the_sign_of_their_factors(kind):
    assert signed(kind, [0.0, INF], [1.0, -1.0]) == (INF, -1.0)
    assert signed(kind, [INF, INF], [1.0, 2.0]) == (INF, 1.0)
    value, sign = signed(kind, [INF, INF], [1.0, -1.0])
    assert np.isnan(value)
    assert np.isnan(sign)


def test_signs_without_factors(kind):
    x = make(kind, [[INF, 1.0], [-INF, -INF], [NAN, 0.0], [3.0, -INF]])
    value, sign = osm.logsumexp(x, 1, return_sign=True)
    assert np.array_equal(float64(value), [INF, -INF, NAN, 3.0], equal_nan=True)
    assert np.array_equal(float64(sign), [1.0, 0.0, NAN, 1.0], equal_nan=True)
    assert value.dtype == sign.dtype == x.dtype


def test_the_result_is_a_named_pair(kind):
    result = osm.logsumexp(make(kind, [1.0]), return_sign=True)
    assert result.value == 1.0
    assert result.sign == 1.0
    assert isinstance(result, osm.SignedLogSumExp)


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_random_factors_agree_with_scipy(axis, keepdims, kind):
    x, b = random((3, 4, 5)), random((3, 4, 5), 1)
    b[0, 0] = 0.0
    value, sign = signed(kind, x, b, axis=axis, keepdims=keepdims)
    want_value, want_sign = scipy.special.logsumexp(x, axis, b=b, keepdims=keepdims, return_sign=True)
    close(value, want_value, 64, atol=1e-13)
    assert np.array_equal(sign, want_sign)
    assert value.shape == np.shape(want_value)


def test_small_terms_near_one_are_kept_with_factors_too(kind):
    value, _ = signed(kind, [0.0, -40.0], [1.0, 1.0])
    close(value, 4.248354255291589e-18, 4)
    value, _ = signed(kind, [0.0, -40.0], [-1.0, 1.0])
    close(value, -4.248354255291589e-18, 4)


def test_any_height(kind):
    for height in (1e4, -1e4):
        value, sign = signed(kind, [height, height + 1], [1.0, -1.0])
        close(value, height + math.log(math.e - 1), 2)
        assert sign == -1


def test_where_and_factors_together(kind):
    x, keep = make(kind, [1.0, NAN, 2.0], "float64"), make(kind, [True, False, True], "bool")
    want = math.log(2 * math.e + 3 * math.e**2)
    close(osm.logsumexp(x, b=make(kind, [2.0, NAN, 3.0], "float64"), where=keep), want, 4)


def test_integers_low_precision_and_dtype(kind):
    x = make(kind, [1.0, 2.0], "float16")
    got = osm.logsumexp(x, b=make(kind, [1.0, 2.0], "float16"))
    assert got.dtype == x.dtype
    close(got, math.log(math.e + 2 * math.e**2), 0.6)
    assert "float64" in str(osm.logsumexp(x, b=make(kind, [1, 2], "int64"), dtype="float64").dtype)
    assert float(osm.logsumexp(make(kind, [], "float32"), b=2.0)) == -INF
    assert float(osm.logsumexp(make(kind, 3.0, "float64"), b=make(kind, 1.0, "float64"))) == 3.0


def test_gradients_with_respect_to_the_array_and_the_factors():
    x, b = torch.from_numpy(random((3, 4))).requires_grad_(), torch.from_numpy(random((3, 4), 1)).abs().requires_grad_()
    assert torch.autograd.gradcheck(lambda x, b: osm.logsumexp(x, 1, b=b), (x, b))
    assert torch.autograd.gradgradcheck(lambda x, b: osm.logsumexp(x, 1, b=b), (x, b))
    signs = torch.tensor([1.0, -1.0, 2.0, -0.5], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: osm.logsumexp(x, 1, b=signs, return_sign=True)[0], (x,))


def test_numpy_warns_of_nothing():
    with np.errstate(all="raise"):
        osm.logsumexp(np.array([INF, -INF, 0.0]), b=np.array([1.0, 0.0, -1.0]), return_sign=True)
        osm.logsumexp(np.array([0.0, 1.0]), b=np.array([0.0, -1.0]))
        osm.logsumexp(np.array([-INF, -INF]), b=np.array([1.0, -1.0]))


class TestErrors:
    """What each misuse of b= is answered with."""

    def test_factors_that_do_not_broadcast_show_both_shapes(self, kind):
        for b in (np.zeros(3), np.zeros((2, 1, 2))):
            with pytest.raises(ValueError, match=r"b has shape .*\(2,\)"):
                osm.logsumexp(make(kind, [1.0, 2.0]), b=make(kind, b))

    def test_complex_factors_are_refused(self, kind):
        with pytest.raises(TypeError, match="b has dtype complex"):
            osm.logsumexp(make(kind, [1.0]), b=make(kind, [1j], "complex128"))

    def test_only_the_reference_runs_them(self, kind):
        x = make(kind, [1.0, 2.0], "float64")
        close(osm.logsumexp(x, b=2.0, impl="reference"), osm.logsumexp(x, b=2.0), 0)
        with pytest.raises((ValueError, RuntimeError), match="impl is 'cpu'"):
            osm.logsumexp(x, b=2.0, impl="cpu")

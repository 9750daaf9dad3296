"""Arrays of a library that has the array-API standard and nothing else go through the reference."""

import array_api_strict as xp
import numpy as np
import pytest
from tests.arrays import INF, random
from tests.ops.softmax.common import FUNCTIONS, NAMES
from tests.tolerances import close

import online_softmax as osm


def strict(x, dtype="float64"):
    return xp.asarray(np.asarray(x, dtype=dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", [0, -1, None, (0, 2)])
@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_numpy_in_the_same_kind_of_array(name, axis, dtype):
    x = random((3, 4, 5)).astype(dtype)
    got = FUNCTIONS[name](strict(x, dtype), axis)
    assert isinstance(got, type(strict(x)))
    assert got.dtype == getattr(xp, dtype)
    close(np.asarray(got), FUNCTIONS[name](x, axis, impl="reference"), 4, atol=np.finfo(dtype).eps)


def test_where_dtype_keepdims_and_factors():
    x, keep = random((3, 4)), np.random.default_rng(2).random((3, 4)) < 0.6
    close(np.asarray(osm.softmax(strict(x), where=xp.asarray(keep))), osm.softmax(x, where=keep), 4)
    assert osm.log_softmax(strict(x), dtype=xp.float32).dtype == xp.float32
    kept = osm.logsumexp(strict(x), 0, keepdims=True, where=xp.asarray(keep))
    close(np.asarray(kept), osm.logsumexp(x, 0, keepdims=True, where=keep), 4, atol=1e-15)
    value, sign = osm.logsumexp(strict(x), b=strict(x), return_sign=True)
    want = osm.logsumexp(x, b=x, return_sign=True)
    close(np.asarray(value), want.value, 8)
    assert float(sign) == want.sign


def test_integers_and_bools_become_the_librarys_default_float():
    assert osm.softmax(xp.asarray([1, 2])).dtype == xp.asarray(0.0).dtype
    assert float(osm.logsumexp(xp.asarray([True, True]))) == pytest.approx(1 + np.log(2))


def test_special_rows_and_empty_reductions():
    x = [[-INF, -INF], [INF, 0.0], [np.nan, 0.0], [0.0, -INF]]
    p = np.asarray(osm.softmax(strict(x)))
    assert np.isnan(p[:3]).all()
    assert p[3].tolist() == [1.0, 0.0]
    lse = np.asarray(osm.logsumexp(strict(x), 1))
    assert np.array_equal(lse, [-INF, INF, np.nan, 0.0], equal_nan=True)
    assert np.asarray(osm.logsumexp(strict(np.zeros((2, 0))), 1)).tolist() == [-INF, -INF]
    assert osm.softmax(strict(np.zeros((2, 0)))).shape == (2, 0)


def test_rows_longer_than_a_block():
    x = random((2, 20_000))
    close(np.asarray(osm.log_softmax(strict(x))), osm.log_softmax(x, impl="reference"), 4)


def test_out_is_written():
    out = strict(np.full((2, 2), np.nan))
    assert osm.softmax(strict(np.zeros((2, 2))), out=out) is out
    assert (np.asarray(out) == 0.5).all()


def test_complex_and_compiled_implementations_are_refused():
    with pytest.raises(TypeError, match="complex"):
        osm.softmax(xp.asarray([1j]))
    with pytest.raises(ValueError, match="impl is 'cpu'"):
        osm.softmax(strict([0.0]), impl="cpu")

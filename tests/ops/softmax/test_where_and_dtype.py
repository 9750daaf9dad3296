"""where= leaves elements out, dtype= chooses the result's precision; both meet every other argument."""

import array_api_strict
import numpy as np
import pytest
import torch
from tests.arrays import INF, NAN, float64, make, random
from tests.ops.softmax.common import FUNCTIONS, NAMES, TRUTH
from tests.tolerances import close
from tests.truth import rows_log_softmax, rows_logsumexp, rows_softmax

import online_softmax as osm

X = random((5, 6))
KEEP = np.array(
    [
        [True, False, True, True, False, True],
        [False] * 6,
        [True] * 6,
        [False, False, False, False, False, True],
        [True, True, False, False, True, True],
    ]
)
SOME = [0, 2, 3, 4]


def mask(kind, keep):
    return torch.from_numpy(np.array(keep)) if kind == "torch" else np.array(keep)


def test_elements_left_out_are_zero_and_minus_infinity_and_count_for_nothing(kind, impl):
    x, where = make(kind, X, "float64"), mask(kind, KEEP)
    left = np.where(KEEP, X, -INF)
    p, logp = osm.softmax(x, where=where, impl=impl), osm.log_softmax(x, where=where, impl=impl)
    lse = osm.logsumexp(x, 1, where=where, impl=impl)
    close(p[SOME], rows_softmax(left[SOME]), 8)
    close(logp[SOME], rows_log_softmax(left[SOME]), 8, atol=1e-15)
    close(lse[SOME], rows_logsumexp(left[SOME]), 8)
    assert (float64(p)[~KEEP] == 0).all()
    assert (float64(logp)[~KEEP] == -INF).all()


def test_a_row_of_which_nothing_is_kept_is_zero_or_minus_infinity(kind, impl):
    for fill in (0.0, NAN, INF, -INF):
        x, where = make(kind, np.full((2, 3), fill)), mask(kind, np.zeros((2, 3), bool))
        assert (float64(osm.softmax(x, where=where, impl=impl)) == 0).all()
        assert (float64(osm.log_softmax(x, where=where, impl=impl)) == -INF).all()
        assert (float64(osm.logsumexp(x, 1, where=where, impl=impl)) == -INF).all()
        value, sign = osm.logsumexp(x, where=where, return_sign=True, impl=impl)
        assert (float(value), float(sign)) == (-INF, 0.0)


def test_what_is_left_out_may_hold_anything(kind, impl):
    for poison in (NAN, INF, -INF, 1e30):
        x = make(kind, np.where(KEEP, X, poison), "float64")
        close(osm.softmax(x, where=mask(kind, KEEP), impl=impl)[SOME], rows_softmax(np.where(KEEP, X, -INF)[SOME]), 8)
        close(osm.logsumexp(x, 1, where=mask(kind, KEEP), impl=impl), rows_logsumexp(np.where(KEEP, X, -INF)), 8)


def test_special_rows_among_what_is_kept_stay_special(kind, impl):
    x = make(kind, [[NAN, 0.0, 1.0], [INF, 0.0, 1.0], [-INF, -INF, 1.0]])
    where = mask(kind, [True, True, False])
    for fn in (osm.softmax, osm.log_softmax):
        y = float64(fn(x, where=where, impl=impl))
        assert np.isnan(y[:, :2]).all()
        assert (y[:, 2] == (0.0 if fn is osm.softmax else -INF)).all()
    lse = float64(osm.logsumexp(x, 1, where=where, impl=impl))
    assert np.isnan(lse[0])
    assert lse[1:].tolist() == [INF, -INF]


@pytest.mark.parametrize("keep", [KEEP[:, :1], KEEP[0], True, KEEP[0].tolist()], ids=str)
def test_where_broadcasts_and_may_be_a_list_or_a_single_bool(keep, kind, impl):
    x, full = make(kind, X, "float64"), np.broadcast_to(keep, X.shape)
    got = osm.softmax(x, where=keep if not isinstance(keep, np.ndarray) else mask(kind, keep), impl=impl)
    want = np.where(full.any(1, keepdims=True), rows_softmax(np.where(full, X, -INF)), 0.0)
    close(got, want, 8)


def test_where_along_any_axes(kind, impl):
    x, keep = random((3, 4, 5)), np.random.default_rng(1).random((3, 4, 5)) < 0.7
    keep[0] = True
    left = np.where(keep, x, -INF)
    for axis in (None, 0, (0, 2), 1):
        p = float64(osm.softmax(make(kind, x, "float64"), axis, where=mask(kind, keep), impl=impl))
        e = np.exp(left)
        close(p, e / e.sum(axis, keepdims=True), 32)
        lse = osm.logsumexp(make(kind, x, "float64"), axis, where=mask(kind, keep), keepdims=True, impl=impl)
        close(lse, np.log(e.sum(axis, keepdims=True)), 32, atol=1e-15)


def test_where_on_a_single_number(kind, impl):
    x = make(kind, 3.0)
    assert float(osm.softmax(x, where=False, impl=impl)) == 0.0
    assert float(osm.softmax(x, where=True, impl=impl)) == 1.0
    assert float(osm.logsumexp(x, where=False, impl=impl)) == -INF


def test_the_gradient_of_what_is_left_out_is_exactly_zero(impl):
    x = torch.from_numpy(np.where(KEEP, X, NAN)).requires_grad_()
    for name in NAMES:
        y = FUNCTIONS[name](x, -1, where=torch.from_numpy(KEEP), impl=impl)
        kept = y if name == "logsumexp" else torch.where(torch.from_numpy(KEEP), y, 0.0)
        (g,) = torch.autograd.grad((kept * torch.linspace(1, 2, kept.shape[-1])).sum(), x)
        assert (g[~torch.from_numpy(KEEP)] == 0).all()
        assert torch.isfinite(g).all()
        assert (g[0] != 0).sum() == KEEP[0].sum()


@pytest.mark.parametrize("to", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32"])
@pytest.mark.parametrize("name", NAMES)
def test_dtype_is_that_of_the_result_rounded_once(name, dtype, to, impl):
    x = make("torch", np.round(X), dtype)
    got = FUNCTIONS[name](x, -1, dtype=getattr(torch, to), impl=impl)
    assert got.dtype == getattr(torch, to)
    # In fp64 whenever either side is: then even a result in low precision is right to half a unit.
    n = 32 if to == "float64" else 8 if to == "float32" and dtype != "float64" else 0.52
    close(got, TRUTH[name](np.round(X)), n, atol=4e-7 if n == 8 else 1e-15)


@pytest.mark.parametrize("spelled", ["float32", np.float32, np.dtype("float32"), torch.float32])
def test_dtype_may_be_spelled_in_any_librarys_way(spelled, kind, impl):
    assert "float32" in str(osm.softmax(make(kind, X, "float64"), dtype=spelled, impl=impl).dtype)


def test_dtype_float_means_float64(kind):
    assert "float64" in str(osm.logsumexp(make(kind, X), dtype=float).dtype)


@pytest.mark.parametrize("spelled", ["float64", np.float64, float, torch.float64])
def test_integers_are_computed_in_the_dtype_asked_for(spelled, kind, impl):
    x = [2**24, 2**24 + 1]  # alike in float32
    want = rows_softmax(np.array([[0.0, 1.0]]))[0]
    for integers in (x, [2**31 - 2, 2**31 - 1]):
        given = make(kind, integers, "int64")
        close(osm.softmax(given, dtype=spelled, impl=impl), want, 8)
        close(osm.log_softmax(given, dtype=spelled, impl=impl), np.log(want), 8)
        close(osm.logsumexp(given, dtype=spelled, impl=impl), integers[1] - np.log(want[1]), 8)


def test_dtype_where_and_out_together(kind, impl):
    x, out = make(kind, X), make(kind, np.full(X.shape, NAN), "float64")
    given = osm.softmax(x, where=mask(kind, KEEP), dtype="float64", out=out, impl=impl)
    assert given is out
    left = np.where(KEEP, float64(x), -INF)
    close(out[SOME], rows_softmax(left[SOME]), 8)
    assert (float64(out)[1] == 0).all()


class TestErrors:
    """What each misuse of where= and dtype= is answered with."""

    def test_a_mask_of_numbers_is_refused(self, kind):
        with pytest.raises(TypeError, match=r"where.*int64.*bool"):
            osm.softmax(make(kind, X), where=make(kind, KEEP, "int64"))

    def test_a_mask_that_does_not_fit_shows_both_shapes(self, kind):
        for keep in (np.ones(5, bool), np.ones((2, 5, 6), bool)):
            with pytest.raises(ValueError, match=r"where.*\(5, 6\)"):
                osm.softmax(make(kind, X), where=mask(kind, keep))

    def test_a_mask_of_another_library_is_refused(self):
        with pytest.raises(TypeError, match="where"):
            osm.softmax(np.zeros(3), where=torch.ones(3, dtype=torch.bool))
        with pytest.raises(TypeError, match="where"):
            osm.softmax(torch.zeros(3), where=array_api_strict.asarray([True, True, True]))

    @pytest.mark.parametrize("bad", ["int32", np.complex128, bool, torch.int64, "float128"])
    def test_a_dtype_that_is_not_floating_is_refused(self, bad, kind):
        for fn in FUNCTIONS.values():
            with pytest.raises(TypeError, match="dtype is"):
                fn(make(kind, X), dtype=bad)

"""The table of special rows: NaN, infinities, masked rows, rows of nothing; values and gradients."""

import numpy as np
import pytest
import torch
from tests.arrays import INF, NAN, float64, make
from tests.ops.softmax.common import FUNCTIONS, NAMES
from tests.tolerances import close
from tests.truth import exact_log_softmax, exact_softmax

import online_softmax as osm

ROWS = {
    "nan": [0.0, NAN, 1.0],
    "nothing but nan": [NAN, NAN, NAN],
    "nan and +inf": [NAN, INF, 1.0],
    "nan and -inf": [NAN, -INF, -INF],
    "all -inf": [-INF, -INF, -INF],
    "+inf": [0.0, INF, 1.0],
    "+inf twice": [INF, 0.0, INF],
    "+inf and -inf": [INF, -INF, 0.0],
    "-inf among finite": [2.0, -INF, 0.0],
    "one finite": [-INF, 5.0, -INF],
    "ordinary": [0.0, 1.0, 2.0],
}
NO_DISTRIBUTION = [name for name in ROWS if "nan" in name or "+inf" in name or name == "all -inf"]
LOGSUMEXP = {name: NAN if "nan" in name else INF if "+inf" in name else None for name in ROWS} | {"all -inf": -INF}
WIDTHS = (0, 1000, 20000)


def padded(width, fill=-INF):
    """All special rows in one array, followed by `width` further elements."""
    return np.concatenate([np.array(list(ROWS.values())), np.full((len(ROWS), width), fill)], 1)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rows_without_a_distribution_are_nan_and_spoil_no_other_row(dtype, width, kind, impl):
    x = make(kind, padded(width), dtype)
    for y, exact, nothing in (
        (osm.softmax(x, impl=impl), exact_softmax, 0.0),
        (osm.log_softmax(x, impl=impl), exact_log_softmax, -INF),
    ):
        for i, name in enumerate(ROWS):
            if name in NO_DISTRIBUTION:
                assert np.isnan(float64(y[i])).all(), name
            else:
                close(y[i][:3], exact(ROWS[name]), 2)
                assert (float64(y[i][3:]) == nothing).all()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_log_sum_exp_of_special_rows(width, kind, impl):
    lse = float64(osm.logsumexp(make(kind, padded(width)), 1, impl=impl))
    for got, (name, row) in zip(lse, ROWS.items(), strict=True):
        want = LOGSUMEXP[name]
        if want is None:
            finite = [x for x in row if x != -INF]
            assert got == pytest.approx(np.logaddexp.reduce(finite), rel=1e-6), name
        else:
            assert np.array_equal(got, want, equal_nan=True), name


def test_nan_in_any_block_of_a_long_row_is_found(kind, impl):
    for at in (0, 1, 8191, 8192, 29999):
        row = np.zeros(30000)
        row[at] = NAN
        x = make(kind, [row, np.zeros(30000)])
        assert np.isnan(float64(osm.softmax(x, impl=impl))[0]).all()
        lse = float64(osm.logsumexp(x, 1, impl=impl))
        assert np.isnan(lse[0])
        assert lse[1] == pytest.approx(np.log(30000))


def test_minus_infinity_is_exactly_zero_and_leaves_the_rest_as_if_it_were_absent(kind, impl):
    y = float64(osm.softmax(make(kind, [1.0, -INF, 2.0], "float64"), impl=impl))
    assert y[1] == 0.0
    close(y[[0, 2]], exact_softmax([1.0, 2.0]), 2)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 4)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_reductions_of_nothing(shape, dtype, kind, impl):
    x = make(kind, np.zeros(shape), dtype)
    for axis in (*range(len(shape)), None, tuple(range(len(shape)))):
        for name in ("softmax", "log_softmax"):
            y = FUNCTIONS[name](x, axis, impl=impl)
            assert tuple(y.shape) == shape
            assert y.dtype == x.dtype
        lse = osm.logsumexp(x, axis, impl=impl)
        assert lse.dtype == x.dtype
        assert (float64(lse) == -INF).all()


def test_numpy_gives_no_floating_point_warning_on_any_row(impl):
    with np.errstate(all="raise"):
        for dtype in (np.float16, np.float32, np.float64):
            x = padded(3).astype(dtype)
            for name in NAMES:
                FUNCTIONS[name](x, -1, impl=impl)
            osm.softmax(np.array([6e4, -6e4], dtype=dtype), impl=impl)
        osm.softmax(np.array([1e300, -1e300]), impl=impl)
        osm.logsumexp(np.array([INF, INF, 0.0]), b=[1.0, -1.0, 0.0], return_sign=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gradient_of_logsumexp_at_infinities_is_never_nan(dtype, impl):
    x = make("torch", [[-INF, -INF, -INF], [INF, 1.0, INF], [-INF, 3.0, -INF], [INF, INF, INF]], dtype).requires_grad_()
    osm.logsumexp(x, 1, impl=impl).sum().backward()
    close(x.grad, [[0, 0, 0], [0.5, 0, 0.5], [0, 1, 0], [1 / 3, 1 / 3, 1 / 3]], 1)


def test_the_gradient_of_a_row_with_nan_is_nan_and_stays_in_its_row(impl):
    x = make("torch", [[NAN, 0.0], [0.0, 0.0]], "float64").requires_grad_()
    for name in NAMES:
        (g,) = torch.autograd.grad(FUNCTIONS[name](x, 1, impl=impl).sum(), x)
        assert torch.isnan(g[0]).all()
        assert torch.isfinite(g[1]).all()


@pytest.mark.parametrize("name", NAMES)
def test_masked_classes_get_exactly_zero_gradient_however_large_they_were(name, impl):
    raw = torch.tensor([[1.0, 90.0, 2.0, -5.0], [0.0, 1e30, -3.0, 0.5]], requires_grad=True)
    masked = raw.masked_fill(torch.tensor([False, True, False, False]), -INF)
    y = FUNCTIONS[name](masked, -1, impl=impl)
    (y if name == "logsumexp" else y[:, [0, 2, 3]] * torch.tensor([1.0, 2.0, -1.0])).sum().backward()
    p = np.array([exact_softmax(row) for row in float64(masked)])
    weights = np.array([1.0, 0.0, 2.0, -1.0])
    want = {
        "softmax": p * (weights - (p * weights).sum(1, keepdims=True)),
        "log_softmax": weights - p * weights.sum(),
        "logsumexp": p,
    }[name]
    assert (raw.grad[:, 1] == 0).all()
    close(raw.grad, want, 8, atol=4e-7)

"""The native kernels of softmax, log_softmax, logsumexp and their gradients, against float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests import exact

from online_softmax import _cpu
from online_softmax._cpu import _native
from online_softmax.ops.softmax import cpu

INSTRUCTION_SETS = _cpu.instruction_sets()
NUMPY = {torch.float16: np.float16, torch.float32: np.float32, torch.float64: np.float64}
# One vector and its ends, one block (1024) and its ends, one piece (32768) and its ends, several pieces.
LENGTHS = [1, 2, 7, 31, 32, 33, 128, 1023, 1024, 1025, 5000, 32768, 32769, 100_000]


@pytest.fixture(params=INSTRUCTION_SETS)
def instruction_set(request):
    _cpu.use_instruction_set(request.param)
    assert _cpu.instruction_set() == request.param
    yield request.param
    _cpu.use_instruction_set(INSTRUCTION_SETS[0])


def poisoned(shape, dtype):
    return np.full(shape, np.nan, dtype)


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_every_length_are_within_a_few_ulp(instruction_set, dtype, length):
    x = (3 * rng().standard_normal((3, length))).astype(dtype)
    largest = np.abs(x).max()
    y = cpu.softmax(x, 1, dtype, poisoned(x.shape, dtype))
    # Rounding x - m moves exp(x - m) by as many units as x - m is large.
    assert exact.ulps(y, exact.softmax(x, 1), dtype) < 4 + np.ptp(x)
    log_y = cpu.log_softmax(x, 1, dtype, poisoned(x.shape, dtype))
    assert exact.ulps(log_y, exact.log_softmax(x, 1), dtype, largest) < 3
    assert exact.ulps(cpu.logsumexp(x, 1, dtype), exact.logsumexp(x, 1), dtype, largest) < 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_errors_over_a_thousand_rows_are_at_most_torchs_worst_plus_two(instruction_set, dtype):
    x = (rng().standard_normal((1000, 999)) * np.geomspace(0.1, 50, 1000)[:, None]).astype(dtype)
    t = torch.from_numpy(x)
    largest = np.abs(x).max(1, keepdims=True)
    for ours, theirs, truth, scale in [
        (cpu.softmax(x, 1, dtype), torch.softmax(t, 1), exact.softmax(x, 1), 0.0),
        (cpu.log_softmax(x, 1, dtype), torch.log_softmax(t, 1), exact.log_softmax(x, 1), largest),
        (cpu.logsumexp(x, 1, dtype), torch.logsumexp(t, 1), exact.logsumexp(x, 1), largest[:, 0]),
    ]:
        big = truth > 1e-30 if np.ndim(scale) == 0 else np.ones(truth.shape, bool)
        truth = np.where(big, truth, 0.0)
        worst = exact.ulps(np.where(big, ours, 0.0), truth, dtype, scale)
        assert worst <= exact.ulps(np.where(big, theirs.numpy(), 0.0), truth, dtype, scale) + 2


@pytest.mark.parametrize(
    ("shape", "axis"), [((5, 1500), 0), ((5, 1500), 1), ((3, 40, 70), 1), ((2, 1100, 9), 1), ((4, 50, 3), 1)]
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_dtype_is_rounded_once_from_the_compute_dtype(instruction_set, dtype, shape, axis):
    x = torch.from_numpy(2 * rng().standard_normal(shape)).to(dtype)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    for function in (cpu.softmax, cpu.log_softmax, cpu.logsumexp):
        result = function(x, axis, dtype)
        assert result.dtype is dtype
        assert torch.equal(result, function(x.to(wide), axis, wide).to(dtype))


@pytest.mark.parametrize("to", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("given", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_pair_of_dtypes(instruction_set, given, to):
    x = torch.from_numpy(rng().standard_normal((20, 300))).to(given)
    wide = torch.float64 if torch.float64 in (given, to) else torch.float32
    for axis in (0, 1):
        y = cpu.softmax(x, axis, to)
        assert y.dtype is to
        truth = torch.from_numpy(exact.softmax(x.double().numpy(), axis))
        assert torch.allclose(y.double(), truth, rtol=2 * torch.finfo(to).eps, atol=1e-7)
        assert torch.equal(y, cpu.softmax(x.to(wide), axis, wide).to(to))
        grad = torch.from_numpy(rng(1).standard_normal((20, 300))).to(given)
        dx = cpu.softmax_backward(grad, y, axis, given)
        assert dx.dtype is given
        want = exact.softmax_backward(grad.double().numpy(), y.double().numpy(), axis)
        assert np.allclose(dx.double().numpy(), want, rtol=2 * torch.finfo(given).eps, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "axis"), [((4, 3000), 1), ((3000, 40), 0), ((2, 1030, 5), 1), ((7, 33), 1), ((70_000, 9), 0)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients(instruction_set, dtype, shape, axis):
    x, grad = (rng(seed).standard_normal(shape).astype(dtype) for seed in (0, 1))
    tolerance = {"rtol": 100 * np.finfo(dtype).eps, "atol": 100 * np.finfo(dtype).eps}
    y = cpu.softmax(x, axis, dtype)
    dx = cpu.softmax_backward(grad, y, axis, dtype, poisoned(shape, dtype))
    assert np.allclose(dx, exact.softmax_backward(grad, y, axis), **tolerance)
    y = cpu.log_softmax(x, axis, dtype)
    dx = cpu.log_softmax_backward(grad, y, axis, dtype, poisoned(shape, dtype))
    tolerance["atol"] *= 100
    assert np.allclose(dx, exact.log_softmax_backward(grad, y, axis), **tolerance)
    lse = cpu.logsumexp(x, axis, dtype)
    g = np.take(grad, 0, axis)
    dx = cpu.logsumexp_backward(g, x, lse, axis, poisoned(shape, dtype))
    assert np.allclose(dx, np.expand_dims(g, axis) * exact.softmax(x, axis), **tolerance)


def test_logsumexp_backward_of_infinite_rows_shares_the_gradient():
    inf = np.inf
    x = np.array([[inf, 1, inf, -inf], [-inf] * 4, [0, -inf, 0, -inf], [np.nan, 0, 0, 0]], np.float32)
    lse = cpu.logsumexp(x, 1, np.float32)
    assert np.array_equal(lse[:2], [inf, -inf])
    dx = cpu.logsumexp_backward(np.full(4, 3, np.float32), x, lse, 1)
    assert np.array_equal(dx[:3], [[1.5, 0, 1.5, 0], [0] * 4, [1.5, 0, 1.5, 0]])
    assert np.isnan(dx[3]).all()
    dx = cpu.logsumexp_backward(np.full(4, inf, np.float32), x, lse, 1)
    assert np.array_equal(dx[2], [inf, 0, inf, 0])


# ---- special rows -------------------------------------------------------------------------------------------------
SPECIAL = {
    "nan": [0.0, np.nan, 1.0],
    "nan beside inf": [np.inf, np.nan, 1.0],
    "inf": [0.0, np.inf, 1.0],
    "two inf": [np.inf, np.inf, -np.inf],
    "nothing but -inf": [-np.inf] * 3,
}


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", SPECIAL)
def test_a_row_without_probabilities_is_nan_and_spoils_no_other(instruction_set, name, dtype, columns):
    row = SPECIAL[name] + [0.5] * 1500 if name != "nothing but -inf" else [-np.inf] * 1503
    plain = rng().standard_normal(1503)
    x = np.array([plain, row, plain] * 4, dtype)
    spoiled = np.arange(12) % 3 == 1
    if columns:
        x = np.ascontiguousarray(x.T).T
    alone = cpu.softmax(np.ascontiguousarray(x[:1]), 1, dtype)
    for function in (cpu.softmax, cpu.log_softmax):
        y = function(x.T, 0, dtype).T if columns else function(x, 1, dtype)
        assert np.isnan(y[spoiled]).all()
        assert np.isfinite(y[~spoiled]).all()
    assert np.array_equal(cpu.softmax(x, 1, dtype)[~spoiled], np.repeat(alone, 8, 0))
    lse = cpu.logsumexp(x.T, 0, dtype) if columns else cpu.logsumexp(x, 1, dtype)
    want = np.nan if "nan" in name else -np.inf if name == "nothing but -inf" else np.inf
    assert np.array_equal(lse[spoiled], np.full(4, want, dtype), equal_nan=True)


@pytest.mark.parametrize("where", [0, 700, 1499])
def test_a_special_element_is_found_wherever_it_stands(instruction_set, where):
    for value, want in ((np.nan, np.nan), (np.inf, np.inf)):
        x = rng().standard_normal(1500).astype(np.float32)
        x[where] = value
        assert np.array_equal(cpu.logsumexp(x, 0, np.float32), np.float32(want), equal_nan=True)


def test_minus_infinity_among_finite_is_exactly_zero(instruction_set):
    x = np.array([[1.0, -np.inf, 2.0, -np.inf]], np.float32)
    assert np.array_equal(cpu.softmax(x, 1, np.float32)[0, [1, 3]], [0, 0])
    assert np.array_equal(cpu.log_softmax(x, 1, np.float32)[0, [1, 3]], [-np.inf, -np.inf])


def test_exponentials_below_the_smallest_normal_are_exactly_zero(instruction_set):
    for dtype in (np.float32, np.float64):
        edge = np.log(np.float64(np.finfo(dtype).tiny))
        x = np.array([0.0, edge * (1 + 1e-6), edge * (1 - 1e-6), 3 * edge], dtype)
        y = cpu.softmax(x, 0, dtype)
        assert y[1] == 0
        assert y[2] > 0
        assert y[3] == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [2, 1000, 3000, 70_000])
def test_small_terms_beside_a_dominant_one_survive(instruction_set, dtype, length):
    x = np.full((length, 10), -np.inf, dtype)
    x[length // 3] = 0.0
    x[length // 2] = -40.0
    for y in (cpu.logsumexp(x, 0, dtype), cpu.logsumexp(np.ascontiguousarray(x.T), 1, dtype)):
        assert np.allclose(y, 4.248354255291589e-18, rtol=1e-6, atol=0)
    assert np.allclose(cpu.log_softmax(x, 0, dtype)[length // 3], -4.248354255291589e-18, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("shape", "axis"), [((0, 5), 1), ((5, 0), 0), ((3, 0), 1), ((0,), 0), ((0, 5), 0), ((2, 0, 9), 1)]
)
def test_no_elements(shape, axis):
    x = np.empty(shape, np.float32)
    assert cpu.softmax(x, axis, np.float32).shape == shape
    assert cpu.log_softmax(x, axis, np.float32).shape == shape
    lse = cpu.logsumexp(x, axis, np.float32)
    assert lse.shape == tuple(np.delete(shape, axis))
    assert (lse == -np.inf).all()


# ---- strides and axes ---------------------------------------------------------------------------------------------
def layouts(dtype):
    """(name, x, axis, the way it is read)."""
    base = rng().standard_normal((40, 2100)).astype(dtype)
    cube = rng().standard_normal((6, 130, 50)).astype(dtype)
    return [
        ("rows", base, 1, "rows"),
        ("columns", base, 0, "columns"),
        ("middle axis", cube, 1, "columns"),
        ("first of three", cube, 0, "columns"),
        ("few columns", cube[:, :, :3].copy(), 1, "gathered rows"),
        ("transposed", base.T, 1, "gathered rows"),
        ("every second", base[:, ::2], 1, "gathered rows"),
        ("every second row", base[::2], 1, "rows"),
        ("reversed", base[:, ::-1], 1, "gathered rows"),
        ("reversed rows", base[::-1], 1, "rows"),
        ("reversed columns", base[::-1], 0, "columns"),
        ("broadcast rows", np.broadcast_to(base[:1], (30, 2100)), 1, "rows"),
        ("broadcast along the axis", np.broadcast_to(base[:, :1], (40, 70)), 1, "rows"),
        ("permuted", cube.transpose(2, 0, 1), 2, "gathered rows"),
        ("one column", base.reshape(-1, 1), 0, "rows"),
    ]


@pytest.mark.parametrize("index", range(15))
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_layout_gives_the_bits_of_a_contiguous_row(instruction_set, dtype, index):
    name, x, axis, way = layouts(dtype)[index]
    before = x.copy()
    x.flags.writeable = False
    rows = np.ascontiguousarray(np.moveaxis(x, axis, -1))
    out = np.empty(x.shape, dtype)
    assert _native.layout(x, out, axis) == way, name
    for function in (cpu.softmax, cpu.log_softmax):
        want = np.moveaxis(function(rows, rows.ndim - 1, dtype), -1, axis)
        assert np.array_equal(function(x, axis, dtype), want), name
        strided = np.full((*x.shape, 2), np.nan, dtype)[..., 0]
        assert function(x, axis, dtype, strided) is strided
        assert np.array_equal(strided, want), name
    assert np.array_equal(cpu.logsumexp(x, axis, dtype), cpu.logsumexp(rows, rows.ndim - 1, dtype)), name
    grad = np.ascontiguousarray(rng(2).standard_normal(x.shape).astype(dtype))
    flat = np.ascontiguousarray(np.moveaxis(grad, axis, -1))
    for function in (cpu.softmax_backward, cpu.log_softmax_backward):
        want = np.moveaxis(function(flat, rows, rows.ndim - 1, dtype), -1, axis)
        assert np.array_equal(function(grad, x, axis, dtype), want), name
    assert np.array_equal(x, before)


@pytest.mark.parametrize("columns", [1, 2, 7, 8, 9, 63, 64, 65, 130])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_column_does_not_depend_on_how_many_there_are(instruction_set, dtype, columns):
    x = rng().standard_normal((1500, 130)).astype(dtype)
    whole = cpu.softmax(x, 0, dtype)
    part = np.ascontiguousarray(x[:, :columns])
    assert np.array_equal(cpu.softmax(part, 0, dtype), whole[:, :columns])


@pytest.mark.parametrize(
    ("shape", "axis"), [((30, 500), 1), ((500, 30), 0), ((4, 70_000), 1), ((3000, 300), 0), ((50, 6, 3), 1)]
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_in_place(instruction_set, dtype, shape, axis):
    x = rng().standard_normal(shape).astype(dtype)
    for function in (cpu.softmax, cpu.log_softmax):
        want = function(x, axis, dtype)
        y = x.copy()
        assert function(y, axis, dtype, y) is y
        assert np.array_equal(y, want)


def test_an_array_off_its_alignment_is_copied():
    buffer = np.zeros(4 * 600 + 1, np.uint8)
    x = buffer[1:].view(np.float32).reshape(20, 30)
    x[...] = rng().standard_normal((20, 30))
    out = np.zeros(4 * 600 + 1, np.uint8)[1:].view(np.float32).reshape(20, 30)
    assert _native.layout(x, out, 1) == "copy"
    want = cpu.softmax(x.copy(), 1, np.float32)
    assert np.array_equal(cpu.softmax(x, 1, np.float32, out), want)
    assert np.array_equal(out, want)
    assert np.array_equal(cpu.logsumexp(x, 1, np.float32), cpu.logsumexp(x.copy(), 1, np.float32))
    assert np.array_equal(
        cpu.softmax_backward(x, x, 1, np.float32, out), cpu.softmax_backward(x.copy(), x.copy(), 1, np.float32)
    )


# ---- the same bits ------------------------------------------------------------------------------------------------
WORK = [((300, 1000), 1), ((3, 200_000), 1), ((1, 400_000), 1), ((1000, 300), 0), ((70_000, 10), 0), ((40, 300, 40), 1)]


@pytest.mark.parametrize(("shape", "axis"), WORK)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_bits_are_the_same_for_any_number_of_threads(instruction_set, dtype, shape, axis):
    x = rng().standard_normal(shape).astype(dtype)
    results = {}
    for threads in (1, 2, 3, 8):
        _cpu.set_num_threads(threads)
        before = _native.shared_jobs()
        y = cpu.softmax(x, axis, dtype)
        assert (_native.shared_jobs() > before) == (threads > 1)
        lse = cpu.logsumexp(x, axis, dtype)
        results[threads] = (
            y, lse, cpu.log_softmax(x, axis, dtype), cpu.softmax_backward(x, y, axis, dtype),
            cpu.log_softmax_backward(x, y, axis, dtype), cpu.logsumexp_backward(lse, x, lse, axis),
        )  # fmt: skip
    for other in (2, 3, 8):
        assert all(np.array_equal(a, b) for a, b in zip(results[1], results[other], strict=True))


@pytest.mark.parametrize("length", [5, 33, 1000, 70_001])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_row_alone_gives_the_bits_it_gives_in_a_batch(instruction_set, dtype, length):
    x = rng().standard_normal((37, length)).astype(dtype)
    y, lse = cpu.softmax(x, 1, dtype), cpu.logsumexp(x, 1, dtype)
    for row in (0, 1, 17, 36):
        buffer = np.empty(length + 3, dtype)[3:]  # elsewhere relative to a cache line, too
        buffer[:] = x[row]
        assert np.array_equal(cpu.softmax(buffer, 0, dtype), y[row])
        assert cpu.logsumexp(x[row : row + 1], 1, dtype)[0] == lse[row]


def test_more_than_two_to_the_31_elements():
    x = np.broadcast_to(np.zeros(1, np.float16), (1, 2**31 + 5))
    assert cpu.logsumexp(x, 1, np.float32)[0] == np.float32(np.log(2.0**31 + 5))


# ---- tensors ------------------------------------------------------------------------------------------------------
def test_large_results_are_tensors_of_numpys_memory():
    x = torch.randn(1100, 1000)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        y = cpu.softmax(x, 1, dtype)
        assert y.dtype is dtype
        assert y.is_contiguous()
        y.add_(1)  # writable
    assert torch.equal(cpu.softmax(x, 1, torch.float32), torch.from_numpy(cpu.softmax(x.numpy(), 1, np.float32)))


def test_broadcast_gradients():
    y = cpu.softmax(torch.randn(50, 300), 0, torch.float32)
    ones = torch.ones(()).expand(50, 300)
    for axis in (0, 1):
        assert torch.equal(
            cpu.softmax_backward(ones, y, axis, torch.float32),
            cpu.softmax_backward(ones.contiguous(), y, axis, torch.float32),
        )
    lse = torch.logsumexp(y, 0)
    for grad in (torch.ones(()).expand(300), torch.randn(600)[::2]):
        assert torch.equal(
            cpu.logsumexp_backward(grad, y, lse, 0), cpu.logsumexp_backward(grad.contiguous(), y, lse, 0)
        )

"""The native kernels of softmax give the same bits for any layout, threads and other rows."""

from __future__ import annotations

import numpy as np
import pytest
from tests.arrays import same_numbers

from online_softmax import _cpu
from online_softmax._cpu import _native
from online_softmax.ops.softmax import cpu

WORK = [((300, 1000), 1), ((3, 200_000), 1), ((1, 400_000), 1), ((1000, 300), 0), ((70_000, 10), 0), ((40, 300, 40), 1)]


def rng(seed=0):
    return np.random.default_rng(seed)


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


def rows_of(length, dtype):
    """300 short rows, some of them with ties, zeros of both signs, infinities and NaN."""
    x = (rng(length).standard_normal((300, length)) * 3).astype(dtype)
    x[::7] = np.round(x[::7])
    x[10], x[20], x[30], x[40, 0], x[50, -1] = -np.inf, np.inf, np.nan, np.inf, np.nan
    x[60, ::2], x[70], x[80, 0], x[90, -1] = -np.inf, -0.0, 300, -300
    return x


@pytest.mark.parametrize("length", [1, 2, 3, 7, 12, 13, 40])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_short_rows_together_give_the_bits_of_each_alone(instruction_set, dtype, length):
    x = rows_of(length, dtype)
    assert _native.layout(x, x, 1) == ("columns" if length <= 12 else "rows")
    grad = rng(2).standard_normal(x.shape).astype(dtype)
    for function in (cpu.softmax, cpu.log_softmax, cpu.logsumexp):
        whole = function(x, 1, dtype)
        assert same_numbers(whole, np.concatenate([function(x[i : i + 1], 1, dtype) for i in range(len(x))]))
        if function is not cpu.logsumexp:
            in_place = x.copy()
            assert same_numbers(function(in_place, 1, dtype, in_place), whole)
    for function in (cpu.softmax_backward, cpu.log_softmax_backward):
        alone = [function(grad[i : i + 1], x[i : i + 1], 1, dtype) for i in range(len(x))]
        assert same_numbers(function(grad, x, 1, dtype), np.concatenate(alone))


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

"""The native kernels of cross-entropy give the same bits for any strides, threads and other rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.arrays import same_numbers
from tests.ops.cross_entropy.cpu_cases import case

from online_softmax import _cpu
from online_softmax._cpu import _native
from online_softmax.ops.cross_entropy import cpu
from online_softmax.ops.cross_entropy.options import Options


def test_any_strides_give_the_bits_of_contiguous_arrays(instruction_set):
    for dtype in (np.float16, np.float32, np.float64):
        base, target = case(40, 1100, dtype)
        padded = np.zeros((40, 1200), dtype)
        padded[:, :1100] = base
        spaced = np.repeat(base, 2, 1)[:, ::2]
        targets = np.repeat(target, 3)[::3]
        want = cpu.forward(base, target, None, None, Options(), aux=True, gradient=True)
        for x in (padded[:, :1100], np.asfortranarray(base), spaced, base[::-1].copy()[::-1]):
            out = np.full((40, 1100, 2), np.nan, dtype)[..., 1]
            f = cpu.forward(x, targets, None, None, Options(), aux=True, gradient=out)
            assert all(np.array_equal(a, b) for a, b in zip(f, want, strict=True))


def rows_of(classes, dtype, count=300):
    """Rows, some of them with ties, infinities and NaN, and their targets, some ignored."""
    x, target = case(count, classes, dtype)
    x[::7] = np.round(x[::7])
    x[10], x[20], x[30], x[40, 0], x[50, -1] = -np.inf, np.inf, np.nan, np.inf, np.nan
    x[60, ::2], x[70], x[80, 0], x[90, -1] = -np.inf, 0, 300, -300
    target[::11] = target[30] = -100
    return x, target


@pytest.mark.parametrize(
    ("classes", "columns"),
    [(1, False), (2, False), (7, False), (12, False), (13, False), (40, True), (1024, True), (1025, True)],
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_taken_together_give_the_bits_of_each_alone(instruction_set, dtype, classes, columns):
    x, target = rows_of(classes, dtype)
    weight = np.random.default_rng(1).random(classes).astype(np.float64 if dtype == np.float64 else np.float32)
    compute = weight.dtype
    together = np.asfortranarray(x) if columns else x  # side by side: columns
    assert _native.layout(together, together, 1) == ("columns" if columns or classes <= 12 else "rows")
    for options, w in itertools.product(
        (Options(reduction="sum"), Options(reduction="sum", z_loss=0.1)), (None, weight)
    ):
        f = cpu.forward(together, target, w, None, options, gradient=True)
        if not columns:
            own = x.copy()
            assert same_numbers(cpu.forward(own, target, w, None, options, gradient=own).gradient, f.gradient)
        none = options._replace(reduction="none")
        late = cpu.forward(together, target, w, None, none)
        incoming, into_lse = (np.linspace(low, 2, len(x)).astype(compute) for low in (0, -1))
        into_lse[::3] = 0
        dx = cpu.backward(together, target, w, late.lse, late.lse_low, late.divisors, none, incoming, into_lse, True)
        for i in range(len(x)):
            row, label = x[i : i + 1], target[i : i + 1]
            one = cpu.forward(row, label, w, None, options, gradient=True)
            assert same_numbers(f.lse[i : i + 1], one.lse)
            assert same_numbers(f.lse_low[i : i + 1], one.lse_low)
            assert same_numbers(f.gradient[i : i + 1], one.gradient)
            assert same_numbers(late.loss[i : i + 1], cpu.forward(row, label, w, None, none).loss)
            given = incoming[i : i + 1], into_lse[i : i + 1], True
            assert same_numbers(
                dx[i : i + 1], cpu.backward(row, label, w, one.lse, one.lse_low, one.divisors, none, *given)
            )


def test_arrays_off_their_alignment_are_copied():
    x, target = case(8, 50, np.float32)
    off = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
    off[...] = x
    t = np.zeros(target.nbytes + 1, np.uint8)[1:].view(np.int64)
    t[...] = target
    want = cpu.forward(x, target, None, None, Options(), gradient=True)
    out = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
    for logits, targets in ((off, target), (x, t), (off, t)):
        f = cpu.forward(logits, targets, None, None, Options(), gradient=out)
        assert f.gradient is out
        assert np.array_equal(out, want.gradient)
        assert np.array_equal(f.loss, want.loss)
        again = cpu.backward(
            logits, targets, None, f.lse, f.lse_low, f.divisors, Options(), np.float32(1)[...], None, out
        )
        assert np.array_equal(again, want.gradient)


@pytest.mark.parametrize(("rows", "classes"), [(300, 1000), (1, 300_000), (3, 300_000), (5, 40_000)])
@pytest.mark.parametrize("options", [Options(), Options(label_smoothing=0.1, softcap=5.0, z_loss=0.1)])
def test_bits_are_the_same_for_any_number_of_threads(instruction_set, rows, classes, options):
    x, target = case(rows, classes, np.float32, ignored=False)
    results = []
    for threads in (1, 2, 3, 8):
        _cpu.set_num_threads(threads)
        before = _native.shared_jobs()
        f = cpu.forward(x, target, None, None, options, aux=True, gradient=True)
        assert (_native.shared_jobs() > before) == (threads > 1)
        results.append(f)
    for f in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(f, results[0], strict=True))


def test_a_row_does_not_depend_on_the_others(instruction_set):
    x, target = case(40, 5001, np.float32, ignored=False)
    options = Options(reduction="none", label_smoothing=0.1)
    whole = cpu.forward(x, target, None, None, options, aux=True)
    for row, (index, parts) in itertools.product((0, 3, 39), enumerate(whole)):
        if parts is None or parts.shape != (40,):
            continue
        alone = cpu.forward(x[row : row + 1], target[row : row + 1], None, None, options, aux=True)
        assert np.array_equal(alone[index][0], parts[row])

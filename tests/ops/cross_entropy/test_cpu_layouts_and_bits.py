"""The native kernels of cross-entropy give the same bits for any strides, threads and other rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
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

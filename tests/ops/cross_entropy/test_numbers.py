"""Numbers at the edge of what a dtype holds: targets of uint64, options beyond fp32, num_items of every kind."""

import itertools
import re

import numpy as np
import pytest
import torch
from tests.arrays import float64, make
from tests.ops.cross_entropy.common import indices, logits, truth
from tests.tolerances import close

import online_softmax as osm


def linear(x, target, **options):
    """linear_cross_entropy whose logits are x."""
    eye = torch.eye(x.shape[1], dtype=x.dtype) if isinstance(x, torch.Tensor) else np.eye(x.shape[1], dtype=x.dtype)
    return osm.linear_cross_entropy(x, eye, target, **options)


EACH = pytest.mark.parametrize("fn", [osm.cross_entropy, osm.cross_entropy_with_grad, linear])


class TestTargetsOfUint64:
    """What int64 does not hold is no class, and never `ignore_index`."""

    @EACH
    @pytest.mark.parametrize("bad", [2**63, 2**64 - 100, 2**64 - 1])
    def test_a_value_beyond_int64_is_named(self, bad, fn, kind):
        t = np.array([0, 1, bad, 2, bad, 3], np.uint64)
        t = torch.from_numpy(t) if kind == "torch" else t
        for ignored in (-100, -1):
            with pytest.raises(IndexError, match=rf"target\[2\] is {bad}; wanted a class"):
                fn(logits(kind=kind), t, ignore_index=ignored)

    @pytest.mark.parametrize("rows", [6, 100])
    def test_so_does_the_check_on_demand(self, rows, kind):
        t = indices(rows, dtype="int64", kind="numpy").astype(np.uint64)
        for bad in (2**64 - 100, 7):
            t[4] = bad
            given = torch.from_numpy(t) if kind == "torch" else t
            with pytest.raises(IndexError, match=rf"target\[4\] is {bad}"):
                osm.check_targets(logits(rows, kind=kind), given)

    @EACH
    def test_classes_are_taken(self, fn, kind):
        t = indices(kind="numpy").astype(np.uint64)
        given = torch.from_numpy(t) if kind == "torch" else t
        got, want = (fn(logits(kind=kind), each) for each in (given, indices(kind=kind)))
        close(got[0] if isinstance(got, tuple) else got, float64(want[0] if isinstance(want, tuple) else want), 0)


class TestOptionsBeyondFp32:
    """Scale, softcap, z-loss and num_items as fp32 has them, or an error; fp64 has more."""

    @EACH
    @pytest.mark.parametrize("name", ["scale", "softcap", "z_loss", "num_items"])
    def test_they_are_refused_for_what_is_computed_in_fp32(self, name, fn, kind):
        for dtype, number in itertools.product(("float16", "float32"), (1e-300, 1e-46, 1e-39, 1e38, 1e39, 1e300)):
            text = re.escape(f"{name} is {number}; wanted a size from 1.2e-38 to 8.5e+37")
            with pytest.raises(ValueError, match=text):
                fn(logits(dtype=dtype, kind=kind), indices(kind=kind), **{name: number})

    @EACH
    def test_fp64_takes_them(self, fn, kind, impl):
        for name, number in itertools.product(("softcap", "scale", "num_items"), (1e-300, 1e-39, 1e39, 1e300)):
            options = {name: min(number, 1.0) if name == "scale" else number}
            got = fn(logits(kind=kind), indices(kind=kind), impl=impl, **options)
            assert np.isfinite(float(got[0] if isinstance(got, tuple) else got))

    @EACH
    def test_the_largest_and_smallest_that_fp32_takes_are_right(self, fn, kind, impl):
        x, t = logits(dtype="float32", kind=kind), indices(kind=kind)
        for softcap in (2.0**-126, 1e-30, 1e30, 2.0**126):
            got = fn(x, t, softcap=softcap, impl=impl)
            close(got[0] if isinstance(got, tuple) else got, truth(x, t, softcap=softcap), 8)

    @EACH
    @pytest.mark.parametrize("name", ["num_items", "scale", "softcap", "label_smoothing", "z_loss"])
    @pytest.mark.parametrize("number", [10**400, -1 << 20000], ids=["large", "huge"])
    def test_ints_beyond_any_float(self, number, name, fn, kind):
        with pytest.raises(ValueError, match=rf"{name} is an int too large for a float"):
            fn(logits(kind=kind), indices(kind=kind), **{name: number})

    @EACH
    @pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 1 << 20000], ids=["more", "less", "huge"])
    def test_an_ignore_index_beyond_int64(self, number, fn, kind):
        with pytest.raises(ValueError, match=r"ignore_index is .*; wanted an int, of at most 64 bits"):
            fn(logits(kind=kind), indices(kind=kind), ignore_index=number)


class TestNumItems:
    """Checked alike however it comes; a constant to autograd."""

    @EACH
    @pytest.mark.parametrize("number", [0, -3, float("nan"), float("inf")])
    def test_what_nothing_can_be_divided_by(self, number, fn, kind):
        for given in (number, np.array(float(number)), np.float32(number), torch.tensor(float(number))):
            with pytest.raises(ValueError, match="num_items is "):
                fn(logits(kind=kind), indices(kind=kind), num_items=given)

    @EACH
    @pytest.mark.parametrize("number", [True, 1j])
    def test_what_is_no_real_number(self, number, fn, kind):
        for given in (number, np.array(number), torch.tensor(number)):
            with pytest.raises(TypeError, match="num_items "):
                fn(logits(kind=kind), indices(kind=kind), num_items=given)

    @pytest.mark.parametrize("fn", [osm.cross_entropy, linear])
    def test_it_has_no_gradient(self, fn, impl):
        x, items = logits(grad=True), torch.tensor(12.0, requires_grad=True)
        loss = fn(x, indices(), num_items=items, impl=impl)
        close(loss, truth(x, indices(), reduction="sum") / 12, 8)
        loss.backward()
        assert items.grad is None
        assert x.grad is not None


@pytest.mark.parametrize("number", [1e-39, 1e39, 10**400])
def test_attention_s_scale(number, kind):
    x = make(kind, np.ones((2, 3)))
    with pytest.raises(ValueError, match="scale is "):
        osm.attention(x, x, x, scale=number)


@pytest.mark.parametrize("n_bytes", [2**63, 2**64, 1 << 20000], ids=["63 bits", "64", "huge"])
def test_memory_beyond_64_bits(n_bytes):
    with pytest.raises(ValueError, match=r"n_bytes is .*at most 64 bits"):
        osm.set_kept_memory(n_bytes)


def test_more_threads_than_any_machine_has(monkeypatch):
    monkeypatch.setattr(osm._cpu, "_threads", None)
    osm.set_num_threads(2**40)
    assert osm._cpu.num_threads() < 10**4
    assert osm.softmax(np.zeros((512, 128), np.float32)).sum() == 512

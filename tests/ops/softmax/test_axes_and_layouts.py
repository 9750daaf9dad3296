"""Every way to name axes, and every way an array can lie in memory."""

import re

import numpy as np
import pytest
import torch
from tests.arrays import float64, make, random, same_bits
from tests.ops.softmax.common import FUNCTIONS, NAMES, TRUTH
from tests.tolerances import close

import online_softmax as osm


def along(name, x, axes):
    """The truth over several axes of a float64 array."""
    axes = tuple(a % x.ndim for a in axes)
    kept = [a for a in range(x.ndim) if a not in axes]
    moved = np.transpose(x, (*kept, *axes))
    rows = TRUTH[name](moved.reshape(*(x.shape[a] for a in kept), -1))
    if name == "logsumexp":
        return rows
    return np.transpose(rows.reshape(moved.shape), np.argsort((*kept, *axes)))


@pytest.mark.parametrize("axis", [None, 0, 1, -1, -3, (0, 1), (-1, 0), (1,), (2, 0, 1), [0, 2]])
@pytest.mark.parametrize("name", NAMES)
def test_axis_is_an_int_a_tuple_or_none(name, axis, kind, impl):
    x = random((2, 3, 4))
    axes = (0, 1, 2) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    got = FUNCTIONS[name](make(kind, x, "float64"), axis, impl=impl)
    close(got, along(name, x, axes), 8, atol=1e-15)
    if name == "logsumexp":
        kept = osm.logsumexp(make(kind, x, "float64"), axis, keepdims=True, impl=impl)
        assert tuple(kept.shape) == tuple(1 if i in {a % 3 for a in axes} else n for i, n in enumerate(x.shape))
        assert same_bits(kept.reshape(np.shape(got)), got)


def test_the_axes_of_nothing_but_an_empty_tuple_reduce_nothing(kind, impl):
    x = make(kind, random((2, 3)), "float64")
    close(osm.softmax(x, (), impl=impl), np.ones((2, 3)), 1)
    close(osm.logsumexp(x, (), impl=impl), float64(x), 1)


def test_the_default_axis_is_the_last_for_softmax_and_all_for_logsumexp(kind):
    x = make(kind, random((2, 3)), "float64")
    assert same_bits(osm.softmax(x), osm.softmax(x, 1))
    assert same_bits(osm.log_softmax(x), osm.log_softmax(x, axis=-1))
    assert osm.logsumexp(x).shape == ()


def test_a_single_number_has_axis_0_and_minus_1(kind, impl):
    x = make(kind, 7.0)
    for axis in (0, -1, None):
        assert float(osm.softmax(x, axis, impl=impl)) == 1.0
        assert float(osm.log_softmax(x, axis, impl=impl)) == 0.0
        assert float(osm.logsumexp(x, axis, impl=impl)) == 7.0
        assert osm.softmax(x, axis, impl=impl).shape == ()
        assert osm.logsumexp(x, axis, keepdims=True, impl=impl).shape == ()


def test_lists_numbers_and_nested_tuples_become_numpy_arrays():
    assert osm.logsumexp(5.0) == 5.0
    assert osm.softmax(3) == 1.0
    close(osm.softmax([0.0, np.log(3.0)]), [0.25, 0.75], 4)
    close(osm.logsumexp(((0.0, 0.0), (0.0, 0.0)), 0), np.log([2.0, 2.0]), 2)
    assert isinstance(osm.softmax([1, 2]), np.ndarray)


def test_numpy_reductions_of_everything_are_numpy_scalars():
    assert isinstance(osm.logsumexp(np.zeros(3, np.float32)), np.float32)
    assert isinstance(osm.logsumexp(np.zeros(3), keepdims=True), np.ndarray)


def layouts(kind):
    """name -> a (6, 7)-like view of unusual memory, float64."""
    wide = make(kind, random((12, 40)), "float64")
    views = {
        "rows further apart": wide[:, :9],
        "every third column": wide[:, ::3],
        "every other row": wide[::2],
        "transposed": wide[:7, :6].T,
        "with an offset": wide[3:, 5:14],
    }
    if kind == "torch":
        return views | {
            "broadcast rows": wide[:1, :7].expand(6, 7),
            "broadcast columns": wide[:, :1].expand(12, 5),
            "three axes permuted": wide[:, :30].reshape(12, 5, 6).permute(2, 0, 1),
        }
    read_only = wide[:, :9].copy()
    read_only.flags.writeable = False
    return views | {
        "backwards": wide[:, ::-1],
        "upside down": wide[::-1, 2:5],
        "Fortran order": np.asfortranarray(wide),
        "broadcast rows": np.broadcast_to(wide[:1], (4, 40)),
        "broadcast columns": np.broadcast_to(wide[:, :1], (12, 5)),
        "three axes permuted": wide[:, :30].reshape(12, 5, 6).transpose(2, 0, 1),
        "byte-swapped": wide.astype(">f8"),
        "byte-swapped and strided": wide.astype(">f8")[:, ::2],
        "read-only": read_only,
        "unaligned": np.frombuffer(b"x" + wide.tobytes(), dtype=np.uint8)[1:].view(np.float64).reshape(wide.shape),
    }


@pytest.mark.parametrize("name", NAMES)
def test_any_layout_gives_the_bits_of_its_dense_copy_and_is_left_alone(name, kind, impl):
    for layout, view in layouts(kind).items():
        dense = view.contiguous() if kind == "torch" else np.ascontiguousarray(view).astype(np.float64)
        before = float64(view).copy()
        for axis in range(view.ndim):
            got, want = FUNCTIONS[name](view, axis, impl=impl), FUNCTIONS[name](dense, axis, impl=impl)
            close(got, along(name, float64(dense), (axis,)), 8, atol=1e-15)
            assert same_bits(got, want), (layout, axis)
        assert np.array_equal(float64(view), before)


def test_subclasses_that_only_offer_array_conversion_are_taken():
    class Wrapped:
        def __array__(self, dtype=None, copy=None):
            return np.array([0.0, 0.0])

    assert osm.softmax(Wrapped()).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_along_inner_axes_far_from_zero(axis, dtype, impl):
    x = make("torch", np.random.default_rng(5).random((4, 3, 5, 2)) * 600 - 20000, dtype)
    close(osm.log_softmax(x, axis, impl=impl), along("log_softmax", float64(x), (axis,)), 1, atol=1e-6)
    close(osm.softmax(x, axis, impl=impl), along("softmax", float64(x), (axis,)), 1)


def test_many_short_rows_along_an_outer_axis(kind, impl):
    x = random((3, 9_000))
    close(osm.softmax(make(kind, x, "float64"), 0, impl=impl), along("softmax", x, (0,)), 8)
    close(osm.logsumexp(make(kind, x, "float64"), 0, impl=impl), along("logsumexp", x, (0,)), 8, atol=1e-15)


def test_a_torch_tensor_with_channels_last_memory(impl):
    x = torch.from_numpy(random((2, 3, 4, 5))).to(memory_format=torch.channels_last)
    close(osm.softmax(x, 1, impl=impl), along("softmax", float64(x), (1,)), 8)


@pytest.mark.parametrize("value", ["yes", 1, 0, None, torch.tensor(True)])
def test_flags_are_true_or_false(value, kind):
    for argument in ("keepdims", "return_sign"):
        with pytest.raises(TypeError, match=rf"{argument} is {re.escape(repr(value))}; wanted True or False"):
            osm.logsumexp(make(kind, [0.0]), **{argument: value})
    assert osm.logsumexp(make(kind, [0.0]), keepdims=np.True_).shape == (1,)

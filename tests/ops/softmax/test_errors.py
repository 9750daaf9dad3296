"""What a call that cannot be answered says: the argument, what came, what is wanted."""

import numpy as np
import pytest
import torch
from tests.arrays import make
from tests.ops.softmax.common import FUNCTIONS, NAMES

import online_softmax as osm

pytestmark = pytest.mark.parametrize("name", NAMES)


def test_complex_numbers_are_refused(name, kind):
    with pytest.raises(TypeError, match="x has dtype complex"):
        FUNCTIONS[name](make(kind, [1.0 + 1j], "complex128"))
    with pytest.raises(TypeError, match="complex"):
        FUNCTIONS[name](1j)


@pytest.mark.parametrize(
    "bad", ["text", None, np.array(["a"]), np.array([None]), np.zeros(2, "M8[s]"), {1: 2}, object()]
)
def test_what_is_no_array_of_numbers_is_refused(name, bad):
    with pytest.raises(TypeError, match="x "):
        FUNCTIONS[name](bad)


def test_ragged_lists_and_lists_of_tensors_are_refused(name):
    with pytest.raises(TypeError, match="x "):
        FUNCTIONS[name]([[1.0], [1.0, 2.0]])
    with pytest.raises(TypeError, match=r"torch\.stack"):
        FUNCTIONS[name]([torch.zeros(2), torch.zeros(2)])


def test_floats_wider_than_the_library_computes_with_are_refused(name):
    with pytest.raises(TypeError, match=r"longdouble|float128|float96"):
        FUNCTIONS[name](np.zeros(2, np.longdouble))


def test_masked_arrays_are_pointed_to_where(name):
    with pytest.raises(TypeError, match=r"mask.*where="):
        FUNCTIONS[name](np.ma.masked_array([1.0, 2.0], [True, False]))


@pytest.mark.parametrize("axis", [2, -3, (0, 2), (-3,)])
def test_an_axis_out_of_range_is_a_value_error(name, axis, kind):
    with pytest.raises(ValueError, match=r"axis is .*out of range.*2 dim"):
        FUNCTIONS[name](make(kind, np.zeros((2, 3))), axis)


@pytest.mark.parametrize("axis", [(0, 0), (0, -2), (1, -1)])
def test_an_axis_named_twice_is_a_value_error(name, axis, kind):
    with pytest.raises(ValueError, match="twice"):
        FUNCTIONS[name](make(kind, np.zeros((2, 3))), axis)


@pytest.mark.parametrize("axis", [1.0, "last", (0.0,), True])
def test_an_axis_that_is_no_int_is_refused(name, axis, kind):
    with pytest.raises((TypeError, ValueError), match="axis is"):
        FUNCTIONS[name](make(kind, np.zeros((2, 3))), axis)


def test_a_single_number_has_no_axis_1(name, kind):
    with pytest.raises(ValueError, match="axis is 1"):
        FUNCTIONS[name](make(kind, 1.0), 1)


def test_torchs_word_for_axis_is_answered(name, kind):
    x = make(kind, np.zeros((2, 3)))
    with pytest.raises(TypeError, match=f"{name}.*'dim'.*use axis="):
        FUNCTIONS[name](x, dim=1)
    with pytest.raises(TypeError, match="use keepdims="):
        FUNCTIONS[name](x, keepdim=True)


def test_an_unknown_implementation_is_named(name, kind):
    with pytest.raises(ValueError, match=r"impl is 'fast'.*'auto'"):
        FUNCTIONS[name](make(kind, [0.0]), impl="fast")


def test_an_implementation_for_other_arrays_is_never_replaced(name, kind):
    with pytest.raises((ValueError, RuntimeError), match="impl is 'cuda'"):
        FUNCTIONS[name](make(kind, [0.0]), impl="cuda")


def test_sparse_and_quantised_tensors_are_refused(name):
    with pytest.raises(TypeError, match="x has layout"):
        FUNCTIONS[name](torch.eye(2).to_sparse())
    with pytest.raises(TypeError, match="x has dtype"):
        FUNCTIONS[name](torch.zeros(2, dtype=torch.float8_e4m3fn))


def test_only_the_array_and_the_axis_are_positional(name):
    with pytest.raises(TypeError):
        FUNCTIONS[name](np.zeros(2), 0, None)


def test_the_input_is_never_written_to(name, kind):
    x = make(kind, [[1.0, 2.0], [3.0, 4.0]])
    before = x.copy() if kind == "numpy" else x.clone()
    for options in ({}, {"where": make(kind, [True, False], "bool")}, {"dtype": "float64"}):
        FUNCTIONS[name](x, -1, **options)
    if name == "logsumexp":
        osm.logsumexp(x, b=x)
    assert bool((x == before).all())

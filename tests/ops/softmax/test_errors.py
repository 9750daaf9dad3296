"""What a call that cannot be answered says: the argument, what came, what is wanted."""

import inspect
import re

import numpy as np
import pytest
import torch
from tests.arrays import make, same_bits
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


@pytest.mark.parametrize("axis", [1.0, "last", (0.0,), True, np.True_, (0, False), np.float32(1), torch.tensor(1.0)])
def test_an_axis_that_is_no_int_is_refused(name, axis, kind):
    with pytest.raises(TypeError, match=r"axis is .*; wanted an int, a tuple of ints or None"):
        FUNCTIONS[name](make(kind, np.zeros((2, 3))), axis)


@pytest.mark.parametrize("axis", [np.int64(1), torch.tensor(1), np.array(1)])
def test_whatever_is_an_integer_to_python_is_an_axis(name, axis, kind):
    x = make(kind, np.zeros((2, 3)))
    assert same_bits(FUNCTIONS[name](x, axis), FUNCTIONS[name](x, 1))


@pytest.mark.parametrize("dtype", ["f4", "int32", np.int32, int, complex, 3.5, object, [1], "half precision"])
def test_a_dtype_that_is_none_of_the_four_is_shown_as_it_came(name, dtype, kind):
    with pytest.raises(TypeError, match=rf"dtype is {re.escape(repr(dtype))}; wanted float16, bfloat16, float32 or"):
        FUNCTIONS[name](make(kind, [0.0]), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("float32"), torch.float32])
def test_a_dtype_may_be_named_in_any_librarys_words(name, dtype, kind):
    assert FUNCTIONS[name](make(kind, [0.0], "float64"), dtype=dtype).dtype == make(kind, [0.0]).dtype


def test_numpy_has_no_bfloat16_of_its_own(name):
    with pytest.raises(TypeError, match=r"dtype is torch\.bfloat16, which .*numpy does not have"):
        FUNCTIONS[name](np.zeros(2), dtype=torch.bfloat16)


@pytest.mark.parametrize("bad", ["text", {}, [[True], [True, False]], [torch.tensor(True)]])
def test_a_mask_that_is_no_array_is_refused(name, bad, kind):
    with pytest.raises(TypeError, match=r"where (is|cannot)"):
        FUNCTIONS[name](make(kind, [0.0]), where=bad)
    if name == "logsumexp":
        with pytest.raises(TypeError, match=r"b (is|cannot)"):
            osm.logsumexp(make(kind, [0.0]), b=bad)


def test_arrays_of_two_libraries_are_refused(name, kind):
    other = make("torch" if kind == "numpy" else "numpy", [True], "bool")
    for argument in ("where", "b") if name == "logsumexp" else ("where",):
        with pytest.raises(
            TypeError, match=rf"{argument} is a {type(other).__name__} of .*, x a .*: wanted one library"
        ):
            FUNCTIONS[name](make(kind, [0.0]), **{argument: other})


def test_a_single_number_has_no_axis_1(name, kind):
    with pytest.raises(ValueError, match="axis is 1"):
        FUNCTIONS[name](make(kind, 1.0), 1)


def test_other_libraries_words_for_an_argument_are_answered(name, kind):
    x = make(kind, np.zeros((2, 3)))
    with pytest.raises(TypeError, match=rf"{name}\(\) takes axis=, not dim="):
        FUNCTIONS[name](x, dim=1)
    for word in ("input", "a"):
        with pytest.raises(TypeError, match=rf"{name}\(\) takes x=, not {word}="):
            FUNCTIONS[name](**{word: x})
    known = r"takes keepdims=, not keepdim=" if name == "logsumexp" else "unexpected keyword argument 'keepdim'"
    with pytest.raises(TypeError, match=known):
        FUNCTIONS[name](x, keepdim=True)


def test_signatures_show_no_word_but_their_own(name):
    assert not {"dim", "keepdim", "input"} & set(inspect.signature(FUNCTIONS[name]).parameters)


def test_an_unknown_implementation_is_named(name, kind):
    with pytest.raises(ValueError, match=r"impl is 'fast'.*'auto'"):
        FUNCTIONS[name](make(kind, [0.0]), impl="fast")
    for bad in (None, ["cpu"], {}):
        with pytest.raises(ValueError, match=r"impl is .*; wanted one of 'auto'"):
            FUNCTIONS[name](make(kind, [0.0]), impl=bad)


def test_an_implementation_for_other_arrays_is_never_replaced(name, kind):
    with pytest.raises((ValueError, RuntimeError), match="impl is 'cuda'"):
        FUNCTIONS[name](make(kind, [0.0]), impl="cuda")


def test_sparse_and_quantised_tensors_are_refused(name):
    with pytest.raises(TypeError, match="x has layout"):
        FUNCTIONS[name](torch.eye(2).to_sparse())
    with pytest.raises(TypeError, match="x has dtype"):
        FUNCTIONS[name](torch.zeros(2, dtype=torch.float8_e4m3fn))
    with pytest.raises(TypeError, match="x is a nested tensor"):
        FUNCTIONS[name](torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged))


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

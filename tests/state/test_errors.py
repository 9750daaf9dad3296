"""What each misuse of State and merge is answered with; states that cannot go together are refused, never broadcast."""

import numpy as np
import pytest
import torch
from tests.arrays import make

from online_softmax import State, merge

X = np.zeros((2, 3))


def test_complex_numbers_and_text_are_refused():
    for bad in (np.array([1j]), np.array(["a"]), "text", None):
        with pytest.raises(TypeError, match="x "):
            State.of(bad)


@pytest.mark.parametrize("axis", [True, 1.0, "1", None, (0, 1), ()])
def test_an_axis_that_is_no_int_is_refused(axis, kind):
    x = make(kind, X)
    for call in (State.of, State.of(x).update, State.of(x).softmax):
        with pytest.raises(TypeError, match=r"axis is .*; wanted an int"):
            call(x, axis)


def test_an_axis_out_of_range_is_named(kind):
    x = make(kind, X)
    for call in (State.of, State.of(x).update, State.of(x).softmax):
        with pytest.raises(ValueError, match=r"axis is 2, which is out of range .* 2 dim"):
            call(x, 2)
    with pytest.raises(ValueError, match=r"\(\)"):
        State.of(make(kind, 1.0))


def test_torchs_word_for_axis_is_answered(kind):
    x = make(kind, X)
    for name, call in (("of", State.of), ("update", State.of(x).update), ("softmax", State.of(x).softmax)):
        with pytest.raises(TypeError, match=rf"State\.{name}\(\) takes axis=, not dim="):
            call(x, dim=1)


@pytest.mark.parametrize("shape", [1.5, "3", (1.5,), ("a",), None, True, (2, True)])
def test_the_shape_of_an_empty_state_is_of_ints(shape, kind):
    with pytest.raises(TypeError, match=r"shape is .*; wanted an int from 0 on, or a tuple of them"):
        State.empty(shape, make(kind, X))


@pytest.mark.parametrize("shape", [-1, (2, -1), 2**63, (2, 2**64)])
def test_the_shape_of_an_empty_state_is_neither_negative_nor_beyond_64_bits(shape, kind):
    with pytest.raises(ValueError, match=r"shape is .*; wanted an int from 0 on"):
        State.empty(shape, make(kind, X))


@pytest.mark.parametrize(
    ("values", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError), ((2,), TypeError)]
)
def test_the_length_of_an_empty_states_values_is_an_int(values, error, kind):
    with pytest.raises(error, match=r"values is .*; wanted an int from 0 on, or None"):
        State.empty(2, make(kind, X), values)


@pytest.mark.parametrize("shape", [2, (2,), [2], np.int64(2), torch.Size([2]), (np.int64(2),)])
def test_the_shape_of_an_empty_state_may_be_any_ints(shape, kind):
    assert tuple(State.empty(shape, make(kind, X)).m.shape) == (2,)


def test_values_of_the_wrong_shape_show_both_shapes():
    with pytest.raises(ValueError, match=r"values has shape \(3, 5\).*\(2, 3, 'd'\)"):
        State.of(X, values=np.zeros((3, 5)))


def test_values_of_another_library_are_refused():
    with pytest.raises(TypeError, match=r"values is a Tensor of .*, x a ndarray of .*: wanted one library"):
        State.of(X, values=torch.zeros(2, 3, 1))
    with pytest.raises(TypeError, match="values is a list, x a Tensor"):
        State.of(torch.zeros(2), values=[[1.0], [2.0]])


def test_a_block_of_other_rows_is_refused(kind):
    for state, rows in (
        (State.of(make(kind, X)), (4,)),
        (State.of(make(kind, X)), (1,)),
        (State.of(make(kind, 3 * [0])), (4,)),
    ):
        block = make(kind, np.zeros((*rows, 3)))
        with pytest.raises(ValueError, match=rf"block has rows of shape \({rows[0]},\).*; wanted the state's \("):
            state.update(block)
        with pytest.raises(ValueError, match=r"x has shape .*; wanted the state's rows \("):
            state.softmax(block)


def test_a_block_of_another_library_is_refused(kind):
    state, other = State.of(make(kind, X)), make("torch" if kind == "numpy" else "numpy", X)
    with pytest.raises(TypeError, match=r"block is a .*, the state a .*: wanted one library"):
        state.update(other)
    with pytest.raises(TypeError, match=r"x is a .*, the state a .*: wanted one library"):
        state.softmax(other)


def test_merging_nothing_or_something_else_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        merge()
    with pytest.raises(TypeError, match="float"):
        merge(State.of(np.zeros(2)), 1.0)


def test_states_of_different_rows_are_not_broadcast():
    with pytest.raises(ValueError, match=r"states are of different rows: shapes \(3,\), \(1,\)"):
        merge(State.empty((3,), X), State.empty((1,), X))


def test_states_of_different_libraries_are_refused():
    with pytest.raises(TypeError, match="different libraries: ndarray, Tensor"):
        merge(State.of(X), State.of(torch.zeros(2, 3)))


def test_two_precisions_do_not_merge():
    with pytest.raises(ValueError, match=r"float32.*float64"):
        merge(State.of(np.zeros(2, np.float32)), State.of(np.zeros(2)))


@pytest.mark.parametrize("like", [[1.0], 1.0, None, (1, 2), np.array([1j]), np.array(["a"]), torch.tensor([1j])])
def test_an_empty_state_is_like_an_array_of_real_numbers(like):
    with pytest.raises(TypeError, match="like "):
        State.empty((), like=like)


@pytest.mark.parametrize("length", [4, 5])
def test_values_of_other_lengths_are_not_broadcast(length, kind):
    state, x = State.of(make(kind, X), values=make(kind, np.zeros((2, 3, 1)))), make(kind, X)
    values = make(kind, np.zeros((2, 3, length)))
    for call in (lambda: merge(state, State.of(x, values=values)), lambda: state.update(x, values=values)):
        with pytest.raises(ValueError, match=rf"values: shape \(2, 1\).*; shape \(2, {length}\).*wanted one shape"):
            call()


def test_a_state_with_values_does_not_merge_with_one_without():
    with pytest.raises(ValueError, match="values"):
        merge(State.of(np.zeros(2)), State.of(np.zeros(2), values=np.zeros((2, 1))))

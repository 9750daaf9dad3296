"""State as a user meets it: summarising data in blocks, probabilities, averages, immutability."""

import dataclasses

import array_api_strict
import numpy as np
import pytest
import torch
from tests.arrays import INF, NAN, float64, make, random
from tests.tolerances import close
from tests.truth import rows_logsumexp, rows_softmax

from online_softmax import State, merge


def test_a_file_larger_than_a_block_is_summarised_block_by_block(tmp_path):
    path = tmp_path / "logits.bin"
    random(100_003, seed=1).astype(np.float32).tofile(path)
    on_disk = np.memmap(path, dtype=np.float32, mode="r")
    state = State.empty((), like=on_disk)
    for start in range(0, len(on_disk), 4096):
        state = state.update(on_disk[start : start + 4096])
    close(state.logsumexp(), rows_logsumexp(np.asarray(on_disk)), 4)
    close(state.softmax(on_disk[:50]), rows_softmax(np.asarray(on_disk))[:50], 32)


def test_update_along_any_axis_is_a_merge_with_the_block(kind):
    x = make(kind, random((3, 10, 4)))
    for axis in (0, 1, 2, -2):
        size = x.shape[axis]
        state = None
        for i in range(size):
            block = x.take(range(i, i + 1), axis) if kind == "numpy" else x.narrow(axis, i, 1)
            state = State.of(block, axis) if state is None else state.update(block, axis)
        close(state.logsumexp(), rows_logsumexp(np.moveaxis(float64(x), axis, -1)), 8)


def test_update_takes_values_and_equals_attention_over_everything(kind):
    x, values = random((2, 3, 9)), random((2, 3, 9, 5), seed=2)
    state = State.empty((2, 3), make(kind, 0.0, "float64"), values=5)
    for part in (slice(0, 4), slice(4, 4), slice(4, 9)):
        state = state.update(make(kind, x[..., part], "float64"), -1, make(kind, values[..., part, :], "float64"))
    close(state.output(), (rows_softmax(x)[..., None] * values).sum(-2), 64, atol=1e-14)


def test_the_softmax_of_a_state_serves_every_block_of_its_rows(kind):
    x = random((5, 30))
    state = State.of(make(kind, x))
    for part in (slice(0, 7), slice(7, 30)):
        close(state.softmax(make(kind, x[:, part])), rows_softmax(float64(make(kind, x)))[:, part], 32)


def test_the_softmax_of_a_state_along_the_first_axis(kind):
    x = make(kind, random((6, 4)), "float64")
    close(State.of(x, 0).softmax(x, 0), rows_softmax(float64(x).T).T, 16)


def test_rows_without_a_distribution_have_nan_probabilities(kind):
    x = make(kind, [[-INF, -INF], [INF, 0.0], [NAN, 0.0], [-INF, 0.0]])
    p = float64(State.of(x).softmax(x))
    assert np.isnan(p[:3]).all()
    assert p[3].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "int32", "bool"])
def test_low_precision_is_summed_in_float32(dtype):
    x = torch.ones(2, 300).to(getattr(torch, dtype))
    state = State.of(x)
    assert state.m.dtype == state.s.dtype == torch.float32
    assert state.s.tolist() == [300.0, 300.0]


def test_float64_stays_float64_and_numpy_integers_become_it(kind):
    assert "float64" in str(State.of(make(kind, [0.0], "float64")).s.dtype)
    assert State.of(np.array([1, 2])).s.dtype == np.float64
    assert State.empty(3, like=make(kind, 0.0, "float64")).m.dtype == make(kind, 0.0, "float64").dtype


def test_a_state_without_elements_is_empty(kind):
    state = State.of(make(kind, np.zeros((4, 0))))
    assert tuple(state.m.shape) == (4,)
    assert (float64(state.m) == -INF).all()
    assert (float64(state.s) == 0).all()


def test_values_of_a_part_that_weighs_nothing_take_no_part_even_if_nan(kind):
    masked = State.of(make(kind, [-INF, -INF]), values=make(kind, [[NAN], [INF]]))
    assert float64(masked.v).tolist() == [0.0]
    kept = State.of(make(kind, [0.0, -INF]), values=make(kind, [[2.0], [NAN]]))
    assert float64(merge(masked, kept, masked).output()).tolist() == [2.0]
    far = State.of(make(kind, [-1e30]), values=make(kind, [[NAN]]))
    assert float64(merge(far, kept).output()).tolist() == [2.0]


def test_nan_values_with_weight_reach_the_output(kind):
    state = State.of(make(kind, [0.0, 0.0]), values=make(kind, [[NAN, 1.0], [1.0, 3.0]]))
    out = float64(state.output())
    assert np.isnan(out[0])
    assert out[1] == 2.0


def test_merging_one_state_returns_it():
    state = State.of(np.array([1.0]))
    assert merge(state) is state
    assert state.merge(state).s == 2.0


def test_a_state_cannot_be_changed():
    state = State.of(np.array([1.0, 2.0]))
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.m = 0.0
    before = float(state.m), float(state.s)
    state.update(np.array([9.0]))
    assert (float(state.m), float(state.s)) == before


def test_neither_the_data_nor_the_parts_are_written_to(kind):
    x = make(kind, random((2, 4)))
    a, b = State.of(x), State.of(x, values=None)
    kept = [float64(part).copy() for part in (x, a.m, a.s, b.m, b.s)]
    a.merge(b).softmax(x)
    for part, before in zip((x, a.m, a.s, b.m, b.s), kept, strict=True):
        assert np.array_equal(float64(part), before)


def test_no_floating_point_warning_escapes_numpy():
    with np.errstate(all="raise"):
        a, b = State.of(np.array([[-INF, -INF], [INF, INF], [0.0, -1e308]])), State.empty(3, np.zeros(1))
        merge(a, b, a).logsumexp()
        merge(b, b).logsumexp()
        a.softmax(np.array([[-INF], [INF], [0.0]]))


def test_gradients_flow_through_states_and_their_merge():
    x = torch.tensor(random((3, 6)), requires_grad=True)
    values = torch.tensor(random((3, 6, 2), 1), requires_grad=True)

    def outputs(x, values):
        state = State.of(x[:, :2], values=values[:, :2]).update(x[:, 2:], values=values[:, 2:])
        return state.logsumexp(), state.output()

    assert torch.autograd.gradcheck(outputs, (x, values))


def gradient_of(parts, result=State.logsumexp):
    """The gradient that autograd gives for the sum of what the merged states of these rows come to."""
    leaves = [torch.tensor(part, dtype=torch.float64, requires_grad=True) for part in parts]
    result(merge(*map(State.of, leaves))).sum().backward()
    return [leaf.grad.tolist() for leaf in leaves]


def test_gradients_of_rows_with_infinities():
    rows = [[-INF, -INF, -INF], [INF, 0.0, -INF], [INF, INF, 1.0]]
    assert gradient_of([rows]) == [[[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]]
    assert gradient_of([[[-INF], [INF], [0.0]], [[-INF, -INF], [INF, INF], [-INF, INF]], [[0.0, -INF]] * 3]) == [
        [[0.0], [1 / 3], [0.0]],
        [[0.0, 0.0], [1 / 3, 1 / 3], [0.0, 1.0]],
        [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]],
    ]
    assert np.isnan(gradient_of([[[NAN, 0.0]]])).all()


def test_gradients_of_parts_with_one_maximum():
    assert gradient_of([[0.0, 0.0], [0.0]]) == [[1 / 3, 1 / 3], [1 / 3]]


def test_a_state_made_of_a_log_sum_exp_hands_its_gradient_on():
    lse = torch.tensor([0.0, 1.0, -INF], requires_grad=True)
    merge(*(State(part, torch.ones(())) for part in lse)).logsumexp().backward()
    close(lse.grad, [*rows_softmax(np.array([[0.0, 1.0]]))[0], 0.0], 8)


def test_values_that_are_not_finite_spoil_no_gradient_where_they_weigh_nothing():
    x = torch.tensor([0.0, -INF, 0.0], requires_grad=True)
    values = torch.tensor([[1.0], [NAN], [3.0]], requires_grad=True)
    for state in (State.of(x, values=values), State.of(x[:2], values=values[:2]).update(x[2:], values=values[2:])):
        into_x, into_values = torch.autograd.grad(state.output().sum(), (x, values))
        assert into_x.tolist() == [-0.5, 0.0, 0.5]
        assert into_values.flatten().tolist() == [0.5, 0.0, 0.5]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool", "float16", "float32", "float64"])
def test_the_empty_state_is_of_the_precision_of_what_it_is_like(dtype, kind):
    x = make(kind, [0, 1, 1], dtype)
    state = State.empty((), like=x).update(x)
    assert state.m.dtype == State.of(x).m.dtype
    close(state.logsumexp(), np.log(1 + 2 * np.e), 4)


def test_a_strict_array_library_keeps_its_kind():
    state = State.of(array_api_strict.asarray([[1.0, 2.0]])).update(array_api_strict.asarray([[3.0]]))
    assert type(state.logsumexp()) is type(array_api_strict.asarray(0.0))

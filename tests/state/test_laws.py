"""The laws of State and merge, which everything in the library rests on, in every array library and precision."""

import functools
import itertools
import random

import array_api_strict
import numpy as np
import pytest
import torch
from tests.arrays import INF, NAN, float64
from tests.tolerances import close
from tests.truth import rows_logsumexp, rows_softmax

from online_softmax import State, merge

# Rows of every kind a state can meet; each is cut into parts in many ways.
ROWS = np.array(
    [
        [0.5, -1.25, 3.0, 3.0, -2.0, 1.0, 0.0, 2.5, -7.0, 4.0, 1.5, 0.25],
        [-INF, -INF, 1.0, -INF, 2.0, -INF, -INF, -INF, 3.0, -INF, -INF, -INF],
        [1000.0, -1000.0, 999.0, 0.0, 1000.0, 500.0, -300.0, 998.0, 2.0, 1.0, 0.0, 7.0],
        [
            -90000.0,
            -90001.0,
            -90002.5,
            -90000.0,
            -90010.0,
            -90003.0,
            -90001.0,
            -90001.0,
            -90004.0,
            -90000.5,
            -90009.0,
            -INF,
        ],
        [-INF] * 12,
        [INF, 1.0, -INF, INF, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, -5.0, INF],
        [1.0, NAN, 2.0, 3.0, -INF, 0.0, 1.0, 2.0, 5.0, 6.0, 7.0, 8.0],
        [INF, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, NAN, INF, 0.0, 0.0],
        [NAN] * 12,
    ]
)
NUMBERS = np.random.default_rng(3).normal(size=(*ROWS.shape, 4))
FINITE = slice(0, 4)

LIBRARIES = {
    "numpy": lambda x, dtype: np.asarray(x, dtype=dtype),
    "torch": lambda x, dtype: torch.tensor(x, dtype=getattr(torch, dtype)),
    "array_api_strict": lambda x, dtype: array_api_strict.asarray(x, dtype=getattr(array_api_strict, dtype)),
}


@pytest.fixture(params=list(itertools.product(LIBRARIES, ("float32", "float64"), (False, True))), ids=str)
def build(request):
    """A function from (row numbers, columns) to the State of that part of ROWS; one for each library and precision."""
    library, dtype, with_values = request.param
    array = functools.partial(LIBRARIES[library], dtype=dtype)

    def of(columns, rows=slice(None), shift=0.0):
        columns = np.arange(ROWS.shape[1])[columns]
        part = np.ascontiguousarray(ROWS[rows][:, columns] + shift)
        values = array(np.ascontiguousarray(NUMBERS[rows][:, columns])) if with_values else None
        return State.of(array(part), values=values)

    of.empty = lambda rows=9: State.empty(rows, array([0.0]), 4 if with_values else None)
    return of


def agree(a, b, n=16.0):
    """Same maxima exactly, same sums to rounding, same dtype."""
    assert a.m.dtype == b.m.dtype == a.s.dtype == b.s.dtype
    assert np.array_equal(float64(a.m), float64(b.m))
    for one, other in ((a.s, b.s), (a.v, b.v)):
        if one is None:
            assert other is None
        else:
            dtype = getattr(np, str(one.dtype).rsplit(".", 1)[-1].strip("'>"))
            close(float64(one).astype(dtype), float64(other), n, atol=n * float(np.finfo(dtype).eps))


def test_the_empty_state_changes_nothing_on_either_side(build):
    state, empty = build(slice(None)), build.empty()
    for merged in (merge(state, empty), merge(empty, state), merge(empty, state, empty)):
        agree(merged, state, 0)


def test_two_empty_states_make_the_empty_state(build):
    both = merge(build.empty(), build.empty())
    assert (float64(both.m) == -INF).all()
    assert (float64(both.s) == 0).all()
    assert (float64(both.logsumexp()) == -INF).all()
    if both.v is not None:
        assert (float64(both.v) == 0).all()
        assert (float64(both.output()) == 0).all()


def test_merging_commutes(build):
    a, b = build(slice(0, 5)), build(slice(5, None))
    agree(merge(a, b), merge(b, a), 0)


def test_merging_associates_up_to_rounding(build):
    for first, second in itertools.combinations(range(1, 12), 2):
        a, b, c = build(slice(0, first)), build(slice(first, second)), build(slice(second, None))
        agree(merge(merge(a, b), c), merge(a, merge(b, c)))
        agree(merge(a, b, c), merge(merge(a, b), c))


def test_blocks_in_any_order_and_any_tree_give_the_state_of_the_whole(build):
    whole, generator = build(slice(None)), random.Random(5)
    for _ in range(25):
        order = generator.sample(range(12), 12)
        cuts = [0, *sorted(generator.sample(range(1, 12), generator.randrange(1, 6))), 12]
        parts = [build(order[start:stop]) for start, stop in itertools.pairwise(cuts)]
        parts += [build.empty()] * generator.randrange(2)
        while len(parts) > 1:
            some = [
                parts.pop(generator.randrange(len(parts))) for _ in range(min(len(parts), generator.choice((2, 2, 3))))
            ]
            parts.append(merge(*some))
        agree(parts[0], whole)


def test_a_constant_added_to_all_moves_the_maximum_and_leaves_the_sums(build):
    for shift in (64.0, -4096.0):
        plain = merge(build(slice(0, 7), slice(0, 3)), build(slice(7, None), slice(0, 3)))
        moved = merge(build(slice(0, 7), slice(0, 3), shift), build(slice(7, None), slice(0, 3), shift))
        assert np.array_equal(float64(moved.m), float64(plain.m) + shift)
        agree(State(plain.m, moved.s, moved.v), plain)


def test_plus_infinity_counts_its_elements_and_outweighs_every_finite_one(build):
    parts = [build(slice(0, 1)), build(slice(1, 3)), build(slice(3, 6)), build(slice(6, None))]
    for order in itertools.permutations(parts):
        state = merge(*order)
        assert float64(state.m)[5] == INF
        assert float64(state.s)[5] == 3
        assert float64(state.logsumexp())[5] == INF


def test_nan_outlives_everything_even_plus_infinity(build):
    parts = [build(slice(0, 1)), build(slice(1, 5)), build(slice(5, 10)), build(slice(10, None))]
    for order in itertools.permutations(parts):
        state = merge(*order, build.empty())
        assert np.isnan(float64(state.s)[6:]).all()
        assert np.isnan(float64(state.logsumexp())[6:]).all()
        assert not np.isnan(float64(state.s)[:6]).any()


def test_the_log_sum_exp_of_any_cut_is_that_of_the_row(build):
    for cut in range(13):
        state = merge(build(slice(0, cut)), build(slice(cut, None)))
        close(
            np.asarray(float64(state.logsumexp()), dtype=str(state.m.dtype).rsplit(".", 1)[-1]), rows_logsumexp(ROWS), 8
        )


def test_values_come_out_as_their_softmax_average(build):
    state = merge(build(slice(0, 5)), build(slice(5, None)))
    if state.v is None:
        with pytest.raises(ValueError, match="values"):
            state.output()
        return
    want = (rows_softmax(ROWS[FINITE])[..., None] * NUMBERS[FINITE]).sum(1)
    tolerance = 64 * (1.2e-7 if "32" in str(state.m.dtype) else 2.3e-16)
    assert np.abs(float64(state.output())[FINITE] - want).max() <= tolerance
    assert (float64(state.output())[4] == 0).all()

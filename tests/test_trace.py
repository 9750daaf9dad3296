import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from online_softmax.trace import trace

KNOWN_ROW = np.random.default_rng(17).standard_normal(64)
ROWS = hnp.arrays(np.float64, st.integers(1, 80), elements=st.floats(-1e3, 1e3))


def test_64_normal_logits_in_blocks_of_8_make_8_updates_and_2_rescales():
    t = trace(KNOWN_ROW, block=8)
    assert (t.updates, t.rescales) == (8, 2)
    assert t.relative_difference < 5e-16


def test_blocks_are_of_8_unless_the_row_is_shorter():
    assert trace(KNOWN_ROW) == trace(KNOWN_ROW, block=8)
    assert trace(KNOWN_ROW[:5]).block == 5


def test_in_blocks_of_one_there_are_2_rescales_again_one_for_each_new_maximum():
    t = trace(KNOWN_ROW, block=1)
    assert (t.updates, t.rescales) == (64, 2)
    new_maxima = [i for i in range(1, 64) if KNOWN_ROW[i] > KNOWN_ROW[:i].max()]
    assert [b.start for b in t.blocks if b.rescaled] == new_maxima


def test_scaled_a_thousandfold_the_naive_sum_overflows_and_the_online_one_does_not():
    t = trace(1000 * KNOWN_ROW, block=8)
    assert t.maximum > 709
    assert not t.naive_is_finite
    assert t.naive_sum == math.inf
    assert t.relative_difference < 1e-15
    assert math.isfinite(t.logsumexp)


def test_float16_overflows_naively_just_above_11():
    assert trace([11.0], block=1, dtype="float16").naive_is_finite
    assert not trace([11.5], block=1, dtype="float16").naive_is_finite
    assert trace([11.5], block=1, dtype="float32").naive_is_finite
    assert not trace([89.0], block=1, dtype="float32").naive_is_finite


@given(ROWS, st.data())
def test_any_block_size_gives_the_same_normaliser(row, data):
    block = data.draw(st.integers(1, row.size))
    t = trace(row, block=block)
    assert t.maximum == row.max()
    assert t.online == pytest.approx(np.exp(row - row.max()).sum(), rel=1e-14)
    assert t.relative_difference < 1e-14
    assert t.updates == math.ceil(row.size / block)


@given(ROWS, st.data())
def test_the_rescale_count_is_what_its_definition_says(row, data):
    block = data.draw(st.integers(1, row.size))
    starts = range(block, row.size, block)
    expected = [start for start in starts if row[start : start + block].max() > row[:start].max()]
    t = trace(row, block=block)
    assert [b.start for b in t.blocks if b.rescaled] == expected
    assert t.rescales == len(expected)


@given(ROWS, st.data())
def test_each_block_starts_where_the_one_before_ended(row, data):
    blocks = trace(row, block=data.draw(st.integers(1, row.size))).blocks
    assert (blocks[0].m_before, blocks[0].s_before) == (-math.inf, 0.0)
    assert (blocks[0].start, blocks[-1].stop) == (0, row.size)
    for a, b in itertools.pairwise(blocks):
        assert (a.stop, a.m_after, a.s_after) == (b.start, b.m_before, b.s_before)
    for b in blocks:
        assert b.m_after == max(b.m_before, b.block_m)
        assert b.factor == pytest.approx(math.exp(b.m_before - b.m_after), rel=1e-14)
        assert b.s_after == pytest.approx(b.s_before * b.factor + b.block_s * math.exp(b.block_m - b.m_after))


def test_minus_infinity_adds_nothing_and_an_all_masked_row_is_the_empty_state():
    t = trace([-math.inf, -math.inf, 2.0, -math.inf], block=2)
    assert (t.maximum, t.online, t.relative_difference) == (2.0, 1.0, 0.0)
    masked = trace([-math.inf] * 4, block=2)
    assert (masked.maximum, masked.online, masked.relative_difference) == (-math.inf, 0.0, 0.0)
    assert masked.logsumexp == -math.inf


def test_nan_reaches_every_total_and_plus_infinity_is_counted():
    assert math.isnan(trace([1.0, math.nan, 2.0], block=1).online)
    assert trace([math.inf, 1.0, math.inf], block=1).online == 2.0


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (([1.0, 2.0], 3), ValueError, "block is 3; wanted 1 to the row's length 2"),
        (([1.0, 2.0], 0), ValueError, "block is 0"),
        (([1.0, 2.0], 1.5), TypeError, "block is 1.5; wanted an int"),
        (([], 1), ValueError, r"x has shape \(0,\); wanted one row of at least one number"),
        (([[1.0]], 1), ValueError, r"x has shape \(1, 1\)"),
        ((["a"], 1), TypeError, "x has dtype <U1; wanted real numbers"),
        (([1j], 1), TypeError, "x has dtype complex128"),
        (([1.0, 2.0], True), TypeError, "block is True; wanted an int"),
        (([1.0], 1, "wide"), TypeError, "dtype is 'wide'; wanted one of"),
        (([1.0], 1, "int32"), TypeError, "dtype is int32; wanted one of float16, float32, float64"),
    ],
)
def test_bad_input_gets_a_plain_message(arguments, error, text):
    with pytest.raises(error, match=text):
        trace(*arguments)


def test_the_row_is_not_modified():
    row = KNOWN_ROW.copy()
    row.flags.writeable = False
    trace(row, block=8, dtype="float16")
    assert np.array_equal(row, KNOWN_ROW)

"""What the sections draw: rows, merges in any order, tiles, losses, traffic. All of it without marimo."""

import math

import numpy as np
import pytest

from online_softmax.workshop.losses import SHAPE, gradient, losses
from online_softmax.workshop.orders import ORDERS, merge_in_order
from online_softmax.workshop.rows import KINDS, MOST_PASTED, make_row, parse_row
from online_softmax.workshop.tiles import attend
from online_softmax.workshop.traffic import traffic


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pasted"])
@pytest.mark.parametrize("n", [1, 2, 64])
def test_every_kind_of_row_has_n_elements_none_of_them_nan(kind, n):
    row = make_row(kind, n, 2.0, 17)
    assert row.shape == (n,)
    assert not np.isnan(row).any()
    assert np.isfinite(row).any()


def test_the_normal_row_is_the_traced_one():
    assert np.array_equal(make_row("normal", 64, 1.0, 17), np.random.default_rng(17).standard_normal(64))


def test_pasted_numbers_may_be_separated_by_anything_usual():
    assert parse_row("[1, 2.5;\n -3e2\t−4 inf -∞]").tolist() == [1, 2.5, -300, -4, math.inf, -math.inf]
    assert math.isnan(parse_row("nan")[0])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "Nothing is pasted yet"),
        (" ,; \n", "Nothing is pasted yet"),
        ("1 2 x3", "“x3”, the entry number 3, is no number"),
        ("open('f')", "“open”, the entry number 1, is no number"),
        ("9" * 5 + "z" * 100, "…”"),
        ("1 " * (MOST_PASTED + 1), "too many"),
    ],
)
def test_pasted_text_that_is_no_row_gets_a_plain_message(text, complaint):
    with pytest.raises(ValueError, match=complaint.replace("(", r"\(")):
        parse_row(text)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("parts", [2, 3, 7, 8, 16])
def test_every_order_merges_every_part_once_and_agrees(order, parts):
    row = make_row("normal", 64, 3.0, 17)
    nodes = merge_in_order(row, parts, order, 5)
    assert len(nodes) == 2 * parts - 1
    assert sorted(nodes[-1].parts) == list(range(parts))
    assert nodes[-1].m == row.max()
    assert nodes[-1].s == pytest.approx(np.exp(row - row.max()).sum(), rel=1e-14)


def test_a_tree_is_as_deep_as_a_logarithm_and_a_line_as_its_parts():
    row = make_row("normal", 64, 3.0, 17)
    assert [merge_in_order(row, 16, order, 5)[-1].level for order in ORDERS[:2]] == [15, 4]


@pytest.mark.parametrize("tile", [1, 3, 8, 64, 100])
@pytest.mark.parametrize("sharpness", [1.0, 1000.0])
def test_the_last_tile_gives_full_attention(tile, sharpness):
    attention = attend(64, tile, sharpness, 17)
    assert attention.tiles[-1].stop == 64
    assert attention.tiles[-1].output == pytest.approx(attention.full, abs=1e-14)
    assert attention.tiles[-1].difference < 1e-14


def test_the_naive_loss_fails_where_exp_overflows_and_the_stable_one_does_not():
    fine, broken = losses(88.0, 1, "float32"), losses(89.0, 1, "float32")
    assert fine.naive == pytest.approx(fine.stable, rel=1e-5)
    assert not math.isfinite(broken.naive)
    assert broken.stable == pytest.approx(89.0 * (SHAPE[0] - SHAPE[1]), rel=1e-5)


def test_the_gradient_is_the_slope_of_the_loss():
    x, target, h = 5.0 * SHAPE, 2, 1e-6

    def loss(row):
        return np.log(np.exp(row).sum()) - row[target]

    slopes = [(loss(x + h * unit) - loss(x - h * unit)) / (2 * h) for unit in np.eye(x.size)]
    assert gradient(5.0, target, "float64").gradient == pytest.approx(slopes, abs=1e-8)


def test_three_reads_of_the_issue_are_3_2_gigabytes():
    three, two, one = traffic(4096, 4096, 32, "fp16", 4250.0)
    assert [way.read_bytes / 1e9 for way in (three, two, one)] == pytest.approx([3.22, 2.15, 1.07], abs=0.005)
    assert three.milliseconds == pytest.approx(4 * 1.0737 / 4.25, rel=1e-3)

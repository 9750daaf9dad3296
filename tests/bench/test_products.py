"""linear_cross_entropy and attention in the benchmark: everyone is asked for the same, and checked."""

import pytest
import torch

from online_softmax.bench import case as cases
from online_softmax.bench import products, targets
from online_softmax.bench.contestants import contestants, yardsticks
from online_softmax.bench.tables import OURS, of
from online_softmax.bench.workload import Workload

WORK = [
    Workload("linear_cross_entropy", 30, 70, inner=16),
    Workload("attention", 2 * 40, 40, inner=8),
    Workload("attention", 2 * 40, 40, variant="causal", inner=8),
]


@pytest.mark.parametrize("workload", WORK, ids=str)
def test_everyone_agrees_with_float64(workload):
    case = cases.make(workload, "cpu")
    right = cases.truth(case)
    everyone = [c for c in contestants(case) if c.library != "torch.compile"]
    assert {c.library for c in everyone} == {OURS, "torch", "torch fused"}
    for contestant in everyone:
        answers = contestant.call(contestant.prepare(case))
        assert cases.worst_error(case, answers, right) < 1e-5, contestant.library


def test_a_wrong_gradient_is_found():
    case = cases.make(WORK[0], "cpu")
    right = cases.truth(case)
    answers = [x.clone() for x in right]
    answers[2][3] *= 1.01
    assert cases.worst_error(case, answers, right) > cases.LIMITS["float32"]


def test_logits_are_made_in_chunks_for_the_truth(monkeypatch):
    case = cases.make(WORK[0], "cpu")
    whole = cases.truth(case)
    monkeypatch.setattr(products, "CHUNK_ROWS", 7)
    for a, b in zip(cases.truth(case), whole, strict=True):
        assert torch.allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize(("workload", "shape"), [(WORK[0], (30, 70)), (WORK[1], (1, 2, 40, 40))], ids=str)
def test_the_yardstick_is_one_product(workload, shape):
    (product,) = yardsticks("cpu", workload.operation)
    assert product.call(cases.make(workload, "cpu"))[0].shape == shape


def test_the_table_counts_in_products_and_the_targets_compare_causal_with_all(cpu_records):
    record = {**cpu_records[1], "dtype": "float32", "traffic": 0, "yardsticks": {"product": 0.02}}
    attention = {"operation": "attention", "rows": 80, "columns": 40, "inner": 8}
    seconds = {OURS: 0.06, "torch": 0.1, "torch fused": 0.05}
    whole = {**record, **attention, "seconds": seconds}
    causal = {**record, **attention, "variant": "causal", "seconds": {**seconds, OURS: 0.03}}
    (table,) = of([cpu_records[0], whole, causal])
    assert table.rows[0][0] == "attention 80 x 8 x 40, fp32"
    assert table.rows[0][-1] == "3.00 product"
    met = {row[0]: row[2:] for row in targets.table([cpu_records[0], whole, causal]).rows}
    assert met["causal attention, ours / all of it"] == ("0.50 at fp32 80 x 40", "yes")
    assert met["attention, torch fused / ours"] == ("0.83 at fp32 80 x 40", "yes")

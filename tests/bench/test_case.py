"""The truth that answers are held against, and the errors it finds."""

import pytest
import torch
import torch.nn.functional as F

from online_softmax.bench import case as cases
from online_softmax.bench.contestants import contestants
from online_softmax.bench.workload import Workload

LOSS = Workload("cross_entropy", 300, 50)


def test_truth_of_a_loss_is_torch_s_in_float64():
    case = cases.make(LOSS, "cpu")
    x = case.x.double().requires_grad_()
    loss = F.cross_entropy(x, case.target)
    loss.backward()
    total, gradient = cases.truth(case)
    torch.testing.assert_close(total, loss.detach())
    torch.testing.assert_close(gradient, x.grad[cases.sample(300)])


@pytest.mark.parametrize("variant", ["none", "all options"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_everyone_agrees_with_the_truth_of_the_variants(variant, dtype):
    case = cases.make(LOSS._replace(variant=variant, dtype=dtype), "cpu")
    right = cases.truth(case)
    for contestant in contestants(case):
        if contestant.library != "torch.compile":
            answers = contestant.call(contestant.prepare(case))
            assert cases.worst_error(case, answers, right) < cases.LIMITS[dtype], contestant.library


def test_a_value_never_written_is_found_in_a_row_that_is_not_compared():
    case = cases.make(Workload("softmax", 1000, 8), "cpu")
    y = torch.softmax(case.x, -1)
    right = cases.truth(case)
    assert cases.worst_error(case, [y], right) < 1e-5
    unseen = next(row for row in range(1000) if row not in cases.sample(1000))
    y[unseen, 3] = float("nan")
    assert cases.worst_error(case, [y], right) == float("inf")


def test_one_wrong_element_is_over_the_limit():
    case = cases.make(Workload("softmax", 4, 1000, "bfloat16"), "cpu")
    y = torch.softmax(case.x, -1)
    y[3, 999] = 2 * y[3, 999] + y.mean()
    assert cases.worst_error(case, [y], cases.truth(case)) > cases.LIMITS["bfloat16"]


def test_results_below_the_smallest_normal_number_may_be_rounded_but_not_wrong():
    case = cases.make(Workload("softmax", 2, 2**20, "float16"), "cpu")
    right = cases.truth(case)
    y = right[0].half()
    step = 2.0**-24
    assert y.median() < 2**-14  # subnormal
    assert cases.worst_error(case, [y], right) < 1e-3
    y[1, 5] += 2 * step
    assert cases.worst_error(case, [y], right) > cases.LIMITS["float16"]


def test_half_a_step_hides_nothing_where_results_are_normal():
    case = cases.make(Workload("softmax", 4, 100, "float16"), "cpu")
    right = cases.truth(case)
    y = right[0].half()
    assert cases.worst_error(case, [y], right) == pytest.approx(
        max(((y.double() - r).abs() / (r + r.mean())).max().item() for r in right), rel=1e-2
    )


def test_work_along_axis_0_is_compared_column_by_column():
    case = cases.make(Workload("softmax", 60, 700, variant="axis 0"), "cpu")
    right = cases.truth(case)
    assert cases.worst_error(case, [torch.softmax(case.x, 0)], right) < 1e-5
    assert cases.worst_error(case, [torch.softmax(case.x, 1)], right) > 0.1


def test_a_loss_that_leaves_its_gradient_in_the_logits_spoils_no_other_call():
    case = cases.make(LOSS._replace(variant="inplace"), "cpu")
    right = cases.truth(case)
    (contestant,) = contestants(case)
    for _ in range(2):
        answers = contestant.call(contestant.prepare(case))
        assert answers[1].data_ptr() == case.x.data_ptr()
        assert cases.worst_error(case, answers, right) < cases.LIMITS["float32"]
    assert torch.equal(cases.copy(case).x, case.original)


def test_the_sample_holds_all_of_a_few_rows_and_both_ends_of_many():
    assert cases.sample(5) == [0, 1, 2, 3, 4]
    many = cases.sample(10**6)
    assert (many[0], many[-1], len(many)) == (0, 10**6 - 1, cases.SAMPLE)

"""How much is taken at a time, and that it changes rounding only."""

import itertools

import pytest
import torch
from tests.arrays import float64, same_bits
from tests.ops.linear_cross_entropy import common
from tests.ops.linear_cross_entropy.common import arguments, gradients, loss_of
from tests.tolerances import close, worst_ulps

import online_softmax as osm
from online_softmax._arrays import namespace
from online_softmax._dispatch import implementation
from online_softmax.ops.cross_entropy.options import Options
from online_softmax.ops.cross_entropy.terms import divide_by
from online_softmax.ops.linear_cross_entropy import plan
from online_softmax.ops.linear_cross_entropy.divisors import batch_divisors
from online_softmax.ops.linear_cross_entropy.problem import Problem


@pytest.fixture
def shapes(impl, monkeypatch):
    """Shapes of the logits that cross-entropy was given."""
    module = implementation("cross_entropy", torch.zeros(1, 1), impl)
    seen, forward = [], module.forward
    monkeypatch.setattr(module, "forward", lambda x, *a, **k: (seen.append(tuple(x.shape)), forward(x, *a, **k))[1])
    return seen


@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 5, 10, 11, 12, 1000])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_every_chunk_size_gives_the_same(chunk_rows, reduction, impl, shapes):
    leaves, target = arguments(), common.targets(ignored=(1, 5))
    whole = loss_of(leaves, target, reduction=reduction, impl=impl)
    shapes.clear()
    loss = loss_of(leaves, target, reduction=reduction, chunk_rows=chunk_rows, impl=impl)
    close(loss, whole, 8)
    for got, right in zip(gradients(loss, leaves), gradients(whole, leaves), strict=True):
        close(got, right, 64, atol=1e-15)
    assert {rows for rows, _ in shapes[:-1]} <= {chunk_rows}
    assert sum(rows for rows, _ in shapes) == 9  # the ignored rows are in no chunk


def test_the_least_memory_holds_a_few_classes_of_all_rows(impl, shapes, monkeypatch):
    common.small_chunks(monkeypatch)
    loss_of(arguments(), common.targets(), memory="least", impl=impl)
    assert shapes == [(11, 1), (11, 3), (11, 3)]  # the short one first, so that the last serves backward too


def test_ignored_rows_take_part_where_aux_asks_for_them(impl, shapes):
    leaves, target = arguments(), common.targets(ignored=range(5))
    loss_of(leaves, target, impl=impl)
    loss_of(leaves, target, return_aux=True, impl=impl)
    assert [rows for rows, _ in shapes] == [6, 11]


def test_runs_repeat_bit_for_bit(impl):
    for options in ({}, {"chunk_rows": 3}, {"memory": "least"}, {"reduction": "none"}):
        runs = []
        for _ in range(2):
            leaves = arguments(40, 16, 300, "float32")
            loss = loss_of(leaves, common.targets(40, 300), impl=impl, **options)
            runs.append((loss.detach(), *gradients(loss.sum(), leaves)))
        assert all(same_bits(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("way", [{"chunk_rows": 16}, {"memory": "least"}, {}], ids=str)
def test_the_weight_s_gradient_is_rounded_once(way, dtype, impl, monkeypatch):
    """Over many chunks of positive terms: sums kept in 16 bits would drift."""
    monkeypatch.setattr(plan, "LEAST_CLASSES", 5)
    monkeypatch.setattr(plan, "LEAST_BYTES", {"cpu": 1})
    rows, classes = 2000, 16
    x = torch.rand(rows, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    w = torch.zeros(classes, 8, dtype=dtype, requires_grad=True)  # so that every probability is exactly 1/16
    loss_of((x, w, None), torch.zeros(rows, dtype=torch.int64), reduction="sum", impl=impl, **way).backward()
    share = torch.full((classes, 1), 1 / classes, dtype=torch.float64)
    share[0] -= 1
    assert worst_ulps(w.grad, float64(share * x.double().sum(0))) <= 0.51


def test_what_mean_divides_by_is_counted_as_cross_entropy_counts_it():
    x, w = torch.ones(4, 3), torch.ones(5, 3)
    for ignore_index, target in (
        (-100, [0, -100, 4, 2]),
        (-100, [0, -100, 5, 2]),
        (2, [0, 2, 2, -1]),
        (7, [7, 7, 7, 7]),
    ):
        options = Options(ignore_index, "mean", 0.0, 1.0, None, 0.0)
        given = x, w, None, torch.tensor(target), None, None, options
        problem = Problem(*given, None, None, "fast", [x.dtype, w.dtype, None], True)
        want = divide_by(namespace(x), problem.target, None, 5, None, options, x.dtype)
        assert same_bits(batch_divisors(problem), want)


class TestPlan:
    """plan.py chooses from shapes and device alone."""

    def test_slices_cover_everything_evenly(self):
        for length in (0, 1, 7, 128, 1000, 4097):
            for at_once, multiple in ((1, 1), (3, 1), (4096, 128), (10**6, 64)):
                found = list(plan.even(length, at_once, multiple))
                assert found[0].start == 0
                assert found[-1].stop == length
                assert all(a.stop == b.start for a, b in itertools.pairwise(found))
                assert all(s.stop - s.start <= max(at_once + multiple - 1, multiple) for s in found)

    def test_on_a_gpu_a_batch_is_one_chunk_where_chunks_and_their_sum_would_take_more(self):
        fit = plan.GPU_ROWS
        assert plan.rows_at_once(fit + 2 * 4096, 4096, 128256, 2, "cuda", sums=True) == fit + 2 * 4096
        assert plan.rows_at_once(fit + 2 * 4096 + 1, 4096, 128256, 2, "cuda", sums=True) == fit
        assert plan.rows_at_once(fit + 1, 4096, 128256, 2, "cuda", sums=False) == fit
        assert plan.rows_at_once(fit + 1, 4096, 128256, 4, "cuda", sums=True) == fit

    def test_a_large_gpu_takes_more_rows(self):
        gib = 2**30
        assert plan.rows_at_once(8192, 2304, 256000, 2, "cuda", True, 139 * gib) == 8192
        assert plan.rows_at_once(65536, 4096, 128256, 2, "cuda", True, 128 * gib) == 4 * gib // (2 * 128256)
        assert plan.rows_at_once(65536, 4096, 128256, 2, "cuda", True, 16 * gib) == plan.GPU_ROWS

    def test_on_a_cpu_a_chunk_is_a_share_of_the_rows_within_a_size_in_bytes(self):
        assert plan.rows_at_once(4096, 512, 4000, 4, "cpu", sums=True) == 4096 // plan.CPU_SHARE
        assert plan.rows_at_once(600, 512, 4000, 4, "cpu", sums=True) == plan.CPU_ROWS
        assert plan.rows_at_once(10**6, 512, 32000, 4, "cpu", sums=True) == plan.CPU_BYTES // 128000
        assert plan.rows_at_once(10**6, 512, 10**7, 4, "cpu", sums=True) == plan.CPU_LEAST_ROWS

    def test_the_least_memory_keeps_to_its_budget(self):
        for rows, hidden, classes in ((8192, 4096, 128256), (4096, 4096, 128256), (8192, 2304, 256000)):
            longest = plan.class_chunks(rows, hidden, classes, 2, "cuda")[0]
            assert 2 * rows * longest.stop + 4 * rows * hidden <= plan.LEAST_BYTES["cuda"]
        assert plan.classes_at_once(10**7, 64, 2, "cuda") == plan.LEAST_CLASSES

    def test_chunks_of_classes_fill_the_row_kernels_of_a_gpu(self):
        found = plan.class_chunks(8192, 4096, 128256, 2, "cuda")
        assert {c.stop - c.start for c in found[:-1]} == {20480}
        assert plan.classes_at_once(32768, 4096, 2, "cuda") == plan.GPU_CLASSES  # beside a sum as large as all else
        assert {c.stop - c.start for c in plan.class_chunks(10**6, 64, 10000, 2, "cuda")[:-1]} == {512}
        assert plan.class_chunks(4, 64, 100, 2, "cuda") == [slice(0, 100)]

    def test_the_least_memory_goes_by_rows_where_that_takes_no_more(self):
        for rows, hidden, classes, by_rows in (
            (32768, 2048, 32000, True),
            (65536, 4096, 32000, True),
            (2048, 4096, 32000, False),  # one chunk has all classes
            (8192, 4096, 128256, False),  # the sum alone would be larger
            (32768, 2048, 50257, False),  # beside the sum there is no room for enough rows
        ):
            assert plan.goes_by_rows(rows, hidden, classes, 2, "cuda") is by_rows
            assert not plan.goes_by_rows(rows, hidden, classes, 2, "cpu")
            if by_rows:
                at_once = plan.least_rows(rows, hidden, classes, 2)
                of_classes = plan.class_chunks(rows, hidden, classes, 2, "cuda")[0].stop
                assert at_once % 128 == 0
                assert at_once >= plan.LEAST_ROWS
                by_classes = max(plan.LEAST_BYTES["cuda"], 2 * rows * of_classes + 4 * rows * hidden)
                assert 2 * at_once * classes + 4 * classes * hidden <= 1.01 * by_classes


def by_rows(monkeypatch):
    """Let memory="least" take 128 rows at a time, as it may on a GPU."""
    monkeypatch.setattr(plan, "goes_by_rows", lambda *_: True)
    monkeypatch.setattr(plan, "least_rows", lambda *_: 128)


def test_the_least_memory_by_rows(impl, shapes, monkeypatch):
    by_rows(monkeypatch)
    leaves, target = arguments(300), common.targets(300)
    loss = loss_of(leaves, target, memory="least", impl=impl)
    assert shapes == [(128, 7), (128, 7), (44, 7)]
    right = common.true_loss(leaves, target)
    close(loss, right, 8)
    for got, wanted in zip(gradients(loss, leaves), gradients(right, leaves), strict=True):
        close(got, wanted, 64, atol=1e-15)
    assert len(shapes) == 3  # the gradients came with the loss


def test_chunk_rows_and_memory_are_checked():
    x, w, b = arguments()
    for options, error, text in [
        ({"chunk_rows": 0}, ValueError, "chunk_rows is 0; wanted at least 1"),
        ({"chunk_rows": -2}, ValueError, "chunk_rows is -2"),
        ({"chunk_rows": 2.5}, TypeError, "chunk_rows is 2.5; wanted an int"),
        ({"chunk_rows": True}, TypeError, "chunk_rows is True; wanted an int"),
        ({"memory": "most"}, ValueError, "memory is 'most'; wanted 'fast' or 'least'"),
        ({"memory": "least", "chunk_rows": 4}, ValueError, "chunk_rows is 4"),
    ]:
        for function in (osm.linear_cross_entropy, osm.linear_cross_entropy_with_grads):
            with pytest.raises(error, match=text):
                function(x, w, common.targets(), linear_bias=b, **options)

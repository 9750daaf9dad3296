"""softmax, log_softmax, logsumexp on the GPU against float64: every regime and layout on a few rows.

The rule that results are held to is in cases.py; test_accuracy.py holds a thousand rows of each length to it.
"""

from __future__ import annotations

import pytest
import torch
from cases import DEVICE, DTYPES, LONG, assert_as_accurate_as_torch, error, lengths, poisoned, random_rows, special_rows
from tests.tolerances import worst_ulps

gpu = pytest.importorskip("online_softmax.ops.softmax.cuda") if torch.cuda.is_available() else None


def check_forward(x: torch.Tensor, dtype: torch.dtype, axis: int = -1) -> None:
    axis %= x.ndim
    for name in ("softmax", "log_softmax"):
        y = getattr(gpu, name)(x, axis, dtype, poisoned(x.shape, dtype))
        assert_as_accurate_as_torch(name, x, y, axis)
    assert_as_accurate_as_torch("logsumexp", x, gpu.logsumexp(x, axis, dtype), axis)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 1])
def test_rows_of_every_regime(dtype, offset):
    for length in lengths(dtype):
        check_forward(random_rows(5, length, dtype, offset), dtype)


@pytest.mark.parametrize("offset", [0, 1])
def test_clusters_that_stay_take_row_after_row(offset):
    for dtype, length in ((torch.float32, 600001), (torch.bfloat16, 2000003)):  # more rows than clusters find room for
        check_forward(random_rows(20, length, dtype, offset), dtype)


@pytest.mark.parametrize("dtype", DTYPES[1:3])
@pytest.mark.parametrize("offset", [0, 1])
def test_rows_beyond_a_cluster(dtype, offset):
    for length in LONG["shared memory to the brim, then split"]:
        check_forward(random_rows(3, length, dtype, offset), dtype)


ORDINARY, SPECIAL = [0, 4, 5], [1, 2, 3, 6, 7]  # of special_rows


def check_special(name: str, x: torch.Tensor, result: torch.Tensor) -> None:
    """Rows with a finite maximum by the rule, the others by their one answer."""
    assert_as_accurate_as_torch(name, x[ORDINARY], result[ORDINARY])
    truth = getattr(torch, name)(x[SPECIAL].double(), 1)
    if name != "logsumexp":
        truth = truth.masked_fill((x[SPECIAL] == torch.inf).any(1, keepdim=True), torch.nan)
    assert worst_ulps(result[SPECIAL], truth) == 0


@pytest.mark.parametrize("length", [5, 700, 9000, 50257, 300000, 1000003])
def test_special_rows(length):
    x = special_rows(length, torch.float32)
    check_special("softmax", x, gpu.softmax(x, 1, x.dtype))
    check_special("log_softmax", x, gpu.log_softmax(x, 1, x.dtype))
    check_special("logsumexp", x, gpu.logsumexp(x, 1, x.dtype))


@pytest.mark.parametrize("axis_length", [33, 1000])
def test_special_columns(axis_length):
    x = special_rows(axis_length, torch.float32)
    columns = x.t().contiguous()
    check_special("softmax", x, gpu.softmax(columns, 0, x.dtype).t())
    check_special("log_softmax", x, gpu.log_softmax(columns, 0, x.dtype).t())
    check_special("logsumexp", x, gpu.logsumexp(columns, 0, x.dtype))


def test_rows_far_from_zero_keep_their_digits():
    # exp2(x * log2(e) - m * log2(e)) in one multiply-add loses three digits here.
    x = random_rows(64, 5000, torch.float32) + 30000
    check_forward(x, torch.float32)
    check_forward(random_rows(4, 100, torch.float32) - 1e6, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [3, 100, 300, 5000, 50257, 300001])
def test_the_whole_range_of_numbers(length, dtype):
    # The least number is what masks are filled with: a row of nothing else, and elements of -inf beside it.
    least, most = torch.finfo(dtype).min, torch.finfo(dtype).max
    x = torch.full((4, length), least, dtype=dtype, device=DEVICE)
    x[1, 1:] = -torch.inf
    x[2, 0], x[3, length - 1] = most, 0
    want = torch.zeros(4, length, dtype=torch.float64, device=DEVICE)
    want[0] = 1 / length
    want[1, 0] = want[2, 0] = want[3, length - 1] = 1
    for y in (gpu.softmax(x, 1, dtype), gpu.softmax(x.t().contiguous(), 0, dtype).t()):
        assert error(y, want) <= 2
    logs = gpu.log_softmax(x, 1, dtype)
    assert error(logs[0], want[0].log()) <= 2
    assert (logs[1, 1:] == -torch.inf).all()


def test_a_logsumexp_near_zero_keeps_its_small_terms():
    for length in (2, 3000, 50257, 300001, 1600001):  # the last two split over blocks
        for dtype in (torch.float32, torch.float64):
            x = torch.full((3, length), -40.0 if length == 2 else -60.0, dtype=dtype, device=DEVICE)
            x[:, 0], x[1, length - 1] = 0, -1e-5
            x[2] = x[2] - 5 * (x[2] == 0)
            exact = x.double().cpu()
            top = exact.amax(1)
            rest = torch.exp(exact - top[:, None]).sort(1).values[:, :-1].sum(1)
            truth = (top + torch.log1p(rest)).to(DEVICE)
            assert error(gpu.logsumexp(x, 1, dtype), truth, 1e-30 if length == 2 else 0) <= 8, length
            assert error(gpu.logsumexp(x.t().contiguous(), 0, dtype), truth) <= 8, length


def test_a_dominant_class_keeps_its_small_log_probability():
    for length in (3, 100, 3000, 50257, 300001, 1600001):  # the last two in shared memory and split over blocks
        for dtype in (torch.float32, torch.float64):
            rows = 70 if length < 100000 else 7
            x = random_rows(rows, length, dtype)  # among rows of which nothing needs mending, some in the same warp
            x[::3], x[::3, length - 1] = -60.0, 10.0
            y = gpu.log_softmax(x, 1, dtype, poisoned(x.shape, dtype))
            exact = x.double().cpu()[::3]
            truth = -torch.log1p(torch.exp(exact[:, :-1] - exact[:, -1:]).sum(1)).to(DEVICE)
            assert error(y[::3, -1], truth) <= 8, length
            assert_as_accurate_as_torch("log_softmax", x, y)
            if length < 100000:
                y = gpu.log_softmax(x.t().contiguous(), 0, dtype)
                assert error(y[-1, ::3], truth) <= 8, length
    y = gpu.log_softmax(torch.tensor([[20.0, 30, 100]], device=DEVICE), 1, torch.float32)
    assert error(y[:, 2], torch.tensor([-3.975630221047431e-31], dtype=torch.float64, device=DEVICE)) <= 4


def test_results_in_another_dtype():
    for source in DTYPES:
        for target in DTYPES:
            for length in (17, 1000, 40001):
                x = random_rows(3, length, source)
                y = gpu.softmax(x, 1, target, poisoned(x.shape, target))
                assert_as_accurate_as_torch("softmax", x, y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_other_axes(dtype):
    for shape, axis in (
        ((7, 33, 5), 1),
        ((3, 130, 70), 1),
        ((1000, 3), 0),
        ((2, 3, 40, 64), 1),
        ((2, 5000, 33), 1),
        ((9, 8, 1), 1),
    ):
        x = random_rows(1, torch.Size(shape).numel(), dtype).reshape(shape)
        check_forward(x, dtype, axis)


def test_strided_views():
    base = random_rows(1, 4 * 6 * 8 * 300, torch.float32).reshape(4, 6, 8, 300)
    views = (
        base[:, ::2],
        base[:, :, :, 1:],
        base[..., ::3],
        base.transpose(0, 1),
        base.transpose(0, 2),
        base.transpose(2, 3),
        base[:, :, :1].expand(4, 6, 8, 300),
        base[0, 0, 0].expand(5, 300),
        base[1:, 2:, ::3, 5:77],
    )
    for view in views:
        for axis in range(view.ndim):
            check_forward(view, torch.float32, axis)


def test_outputs_with_strides_and_in_place():
    x = random_rows(6, 1000, torch.float32)
    for out in (
        poisoned((6, 2000), x.dtype)[:, ::2],
        poisoned((6, 1003), x.dtype)[:, 3:],
        poisoned((1000, 6), x.dtype).t(),
    ):
        assert gpu.softmax(x, 1, x.dtype, out) is out
        assert_as_accurate_as_torch("softmax", x, out)
    for length in (100, 50257, 300001, 1600001):
        x = random_rows(3, length, torch.bfloat16)
        before = x.clone()
        assert_as_accurate_as_torch("softmax", before, gpu.softmax(x, 1, x.dtype, x))
    x = random_rows(40, 30, torch.float32).t()
    before = x.clone()
    assert_as_accurate_as_torch("softmax", before, gpu.softmax(x, 0, x.dtype, x), 0)


def test_no_elements():
    x = torch.empty(3, 0, device=DEVICE)
    assert gpu.softmax(x, 1, x.dtype).shape == (3, 0)
    assert gpu.logsumexp(x, 1, x.dtype).tolist() == [-torch.inf] * 3
    assert gpu.logsumexp(x, 0, x.dtype).shape == (0,)


def test_the_same_bits_every_run_and_in_any_batch():
    for dtype in (torch.bfloat16, torch.float32):
        for length in (40, 1000, 16384, 50257, 131072, 300000, 1600001):
            x = random_rows(40 if length < 200000 else 18, length, dtype)
            for operation in (gpu.softmax, gpu.log_softmax):
                y = operation(x, 1, dtype)
                assert torch.equal(y, operation(x, 1, dtype))
                for row in (0, 16):  # the same address modulo 16
                    assert torch.equal(y[row], operation(x[row].clone(), 0, dtype)), (length, row)
            lse = gpu.logsumexp(x, 1, dtype)
            assert torch.equal(lse[16], gpu.logsumexp(x[16].clone(), 0, dtype))


def test_more_than_two_to_the_31_elements():
    x = torch.zeros(2**31 // 4096 + 5, 4096, device=DEVICE, dtype=torch.bfloat16)
    x[-1, 7] = 3
    y = gpu.softmax(x, 1, x.dtype)
    assert_as_accurate_as_torch("softmax", x[-1:], y[-1:])
    assert bool((y[:-1] == 2.0**-12).all())

"""The kernels that merge partial results of attention, at every width of their loads, against float64."""

from __future__ import annotations

import pytest
import torch
from cases import DEVICE, EPS, poisoned

if torch.cuda.is_available():
    from online_softmax.ops.attention import cuda_merge as gpu
    from online_softmax.ops.attention import reference

# Loads of 16, 8, 4 and 2 bytes; lanes to spare; rows longer than a warp takes at once.
CASES = [
    (torch.float16, 128),
    (torch.float16, 100),
    (torch.bfloat16, 50),
    (torch.float16, 7),
    (torch.bfloat16, 96),
    (torch.bfloat16, 1000),
    (torch.float32, 64),
    (torch.float32, 50),
    (torch.float32, 33),
    (torch.float32, 1),
    (torch.float64, 48),
]


def gap(got: torch.Tensor, want: torch.Tensor, unit: float) -> float:
    """The largest difference of finite numbers in `unit`s of the largest; infinite where NaN or infinities differ."""
    got, want = got.double(), want.double()
    finite = want.isfinite()
    if not torch.equal(torch.where(finite, 0.0, want).nan_to_num(1e9), torch.where(finite, 0.0, got).nan_to_num(1e9)):
        return torch.inf
    return float((got[finite] - want[finite]).abs().max() / want[finite].abs().max() / unit)


@pytest.mark.parametrize(("dtype", "size"), CASES)
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("count", [2, 3, 11, 40])
def test_merging_and_its_gradients(dtype, size, listed, count):
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    outs = torch.randn(count, 37, 5, size, device=DEVICE).to(dtype)
    lses = torch.randn(count, 37, 5, device=DEVICE, dtype=compute)
    lses[0, :3], lses[:, 3], lses[0, 4], lses[1, 5] = -torch.inf, -torch.inf, torch.nan, torch.inf
    outs[0, :3] = torch.nan
    if listed:
        given = [[x.clone() for x in each] for each in (outs, lses)]
        order = list(reversed(range(count)))  # addresses that have no stride, whatever the allocator does
        order[0], order[1] = order[1], order[0]
        given = [[each[i] for i in order] for each in given]
    else:
        given = [outs, lses]
    wide = [[x.double() for x in each] for each in given]
    out, lse = gpu.merge(*given)
    exact_out, exact_lse = reference.merge(*wide)
    bound = 1 if dtype.itemsize == 2 else 8
    assert gap(out, exact_out, EPS[dtype]) <= bound
    assert gap(lse, exact_lse, EPS[compute]) <= 8

    # From the same out: one that is rounded the other way in a few places makes another gradient of lse.
    grad_out, grad_lse = torch.randn_like(out), torch.randn_like(lse)
    got = [
        poisoned(x.shape, x.dtype) if isinstance(x, torch.Tensor) else [poisoned(each.shape, each.dtype) for each in x]
        for x in given
    ]
    want = [[poisoned(x.shape, torch.float64) for x in each] for each in given]
    gpu.merge_backward(grad_out, grad_lse, *given, out, lse, *got)
    reference.merge_backward(grad_out.double(), grad_lse.double(), *wide, out.double(), lse.double(), *want)
    for mine, exact, limit in zip(got, want, (bound * EPS[dtype], 24 * EPS[compute]), strict=True):
        for one, other in zip(mine, exact, strict=True):
            assert gap(one, other, limit) <= 1

"""Merging partial results of attention, and its gradients, by the kernels' own code on the CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.core")

from tests.cuda.emulator.cases import BF16, F32, INF, NAN  # noqa: E402
from tests.tolerances import eps  # noqa: E402

from online_softmax.ops.attention import reference  # noqa: E402


def gap(got, want):
    """The largest difference of finite numbers in eps of the largest; NaN and infinities have to agree."""
    got, want = got.double(), want.double()
    finite = want.isfinite()
    assert torch.equal(got[~finite].nan_to_num(1e9), want[~finite].nan_to_num(1e9))
    return float((got[finite] - want[finite]).abs().max() / want[finite].abs().max())


# Loads of 16, 8 and 2 bytes; rows longer than a warp takes at once.
@pytest.mark.parametrize(
    ("dtype", "size", "count", "listed"),
    [(BF16, 64, 3, True), (BF16, 1000, 2, False), (F32, 50, 11, False), (BF16, 7, 2, True)],
)
def test_merging_and_its_gradients(device, dtype, size, count, listed):
    merging = device.module("ops.attention.cuda_merge")
    generator = torch.Generator().manual_seed(size)
    outs = torch.randn(count, 9, size, generator=generator).to(dtype)
    lses = torch.randn(count, 9, generator=generator)
    lses[0, :2], lses[:, 2], lses[0, 3], lses[1, 4] = -INF, -INF, NAN, INF
    outs[0, :2] = NAN  # of which nothing was seen
    given = [[each.clone() for each in stacked] for stacked in (outs, lses)] if listed else [outs, lses]
    wide = [[each.double() for each in partials] for partials in given]
    out, lse = merging.merge(*given)
    exact_out, exact_lse = reference.merge(*wide)
    bound = 1 if dtype == BF16 else 8
    assert gap(out, exact_out) <= bound * eps(dtype)
    assert gap(lse, exact_lse) <= 8 * eps(F32)

    grad_out, grad_lse = torch.randn(9, size, generator=generator).to(dtype), torch.randn(9, generator=generator)
    got = [[torch.full_like(each, NAN) for each in partials] for partials in given]
    if not listed:
        got = [torch.stack(each) for each in got]
    want = [[torch.full_like(each, NAN) for each in partials] for partials in wide]
    merging.merge_backward(grad_out, grad_lse, *given, out, lse, *got)
    reference.merge_backward(grad_out.double(), grad_lse.double(), *wide, out.double(), lse.double(), *want)
    for mine, exact, limit in zip(got, want, (bound * eps(dtype), 24 * eps(F32)), strict=True):
        for one, other in zip(mine, exact, strict=True):
            assert gap(one, other) <= limit

"""How near a result must be: the error rule of the library, and a plain bound for small cases."""

import numpy as np
import torch
from tests.arrays import float64


def eps(dtype):
    """Spacing of the dtype's numbers at 1."""
    if isinstance(dtype, torch.dtype):
        return float(torch.finfo(dtype).eps)
    if np.dtype(dtype).name == "bfloat16":
        return 2.0**-7
    return float(np.finfo(dtype).eps)


def smallest_normal(dtype):
    """The smallest number of full precision."""
    if isinstance(dtype, torch.dtype):
        return float(torch.finfo(dtype).smallest_normal)
    return 2.0**-126 if np.dtype(dtype).name == "bfloat16" else float(np.finfo(dtype).smallest_normal)


def worst_ulps(result, truth, m=0.0):
    """The largest |result − truth| in units in the last place, in result's dtype, of max(|truth|, |m|).

    `m` is the maximum of each element's row and broadcasts to truth.  Infinite where one is NaN or infinite alone.
    For arrays and tensors; computed where result lies.
    """
    where = result.device if isinstance(result, torch.Tensor) else None
    got, want, m = (_wide(x, where) for x in (result, truth, m))
    assert got.shape == want.shape, f"shape {tuple(got.shape)} is not {tuple(want.shape)}"
    size = torch.maximum(want.abs(), m.abs()).clamp(min=smallest_normal(result.dtype))
    agree = (got == want) | (got.isnan() & want.isnan())
    size = torch.where(size.isfinite(), size, 1.0)
    unit = size / torch.frexp(size).mantissa / 2 * eps(result.dtype)  # the power of two below size, exactly
    error = ((got - want).abs() / unit).nan_to_num(nan=torch.inf, posinf=torch.inf)
    return float(torch.where(agree, 0.0, error).max()) if error.numel() else 0.0


def _wide(x, where):
    """x as a float64 tensor on the device of the result."""
    wide = x.detach().to(torch.float64) if isinstance(x, torch.Tensor) else torch.from_numpy(float64(x).copy())
    return wide if where is None else wide.to(where)


def assert_as_accurate_as_peers(result, truth, m, *peers):
    """The rule: over a thousand rows or more, the worst error is at most the better peer's worst plus two."""
    assert truth.shape[0] >= 1000, "the worst of fewer than 1000 rows says little"
    assert_no_worse(worst_ulps(result, truth, m), *(worst_ulps(peer, truth, m) for peer in peers))


def assert_no_worse(ours, *peers):
    """The rule's comparison of worst errors; a peer that is infinitely wrong says nothing."""
    best = min(peers)
    assert ours < np.inf, "NaN or an infinity in the wrong place"
    assert ours <= best + 2.0, f"worst error {ours:.2f} ulp; the better peer's is {best:.2f}"


def close(got, want, n=4.0, atol=0.0):
    """Fail unless |got − want| is within n eps of got's dtype, relative, or within atol; NaN and inf agree as such."""
    a, b = float64(got), float64(want)
    assert a.shape == b.shape, f"shape {a.shape} is not {b.shape}"
    dtype = getattr(got, "dtype", np.dtype(np.float64))
    allowed = n * eps(dtype) * np.abs(b) + atol + smallest_normal(dtype) * eps(dtype)
    with np.errstate(invalid="ignore"):
        fine = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= allowed)
    if not fine.all():
        at = tuple(int(i[0]) for i in np.nonzero(~fine)) if a.ndim else ()
        raise AssertionError(f"{(~fine).sum()} of {fine.size} differ, first at {at}: got {a[at]!r}, want {b[at]!r}")

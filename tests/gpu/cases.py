"""Sizes by regime, random and special rows, references in float64, and measures of error.

The rule for results is that of the CPU's tests, with torch on the same GPU as the peer: against float64, the worst
error in units in the last place of max(|result|, |m|), m the row's maximum, is at most torch's worst on the same input
plus two.  Most of an fp32 softmax's error is exp of a rounded difference, |x - m| / 2 units, for torch as for us.
Results of 16 bits are rounded once besides, half a unit.  fp64 results, for which the GPU has no better truth, keep to
fixed bounds, and so do gradients, in units of the terms whose difference they are.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from tests.tolerances import assert_no_worse, worst_ulps

DEVICE = "cuda"
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
EPS = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, torch.float32: 2.0**-23, torch.float64: 2.0**-52}

LENGTHS = {
    "less than a word": (1, 2, 3, 7),
    "around the words of one warp": (8, 9, 31, 64, 65, 100, 128, 129, 255, 256, 257, 500, 1000, 1023, 1024, 1025),
    "around one block": (2049, 4096, 5000, 8191, 16384, 16385),
    "clusters, even and uneven": (32000, 50257, 65536, 65537, 131072, 200001),
    "the last that registers hold, and shared memory": (222222, 262144, 262145, 400003),
}
LONG = {"shared memory to the brim, then split": (786432, 1048576, 1600001)}

# In registers of a warp, of a block and of a cluster; in shared memory; split.
DEVICE_LENGTHS = (100, 5000, 50257, 300000, 1600001)


def lengths(dtype: torch.dtype) -> list[int]:
    every = [n for group in LENGTHS.values() for n in group]
    return every if dtype != torch.float64 else [n for n in every if n <= 200001]


def random_rows(rows: int, length: int, dtype: torch.dtype, offset: int = 0, seed: int = 0) -> torch.Tensor:
    """Normal numbers times three; with an offset, a view whose rows start off 16 bytes and lie apart."""
    generator = torch.Generator(device=DEVICE).manual_seed(seed + length)
    width = length + (3 if offset else 0)
    x = torch.randn(rows, width, device=DEVICE, generator=generator, dtype=torch.float32).mul_(3).to(dtype)
    return x[:, offset : offset + length]


def special_rows(length: int, dtype: torch.dtype) -> torch.Tensor:
    x = random_rows(8, length, dtype)
    x[1] = -torch.inf
    x[2, length // 2] = torch.inf
    x[3, length - 1] = torch.nan
    x[4, ::2] = -torch.inf
    x[5] = x[5] + 300
    x[6, 0], x[6, length - 1] = torch.inf, torch.nan
    x[7] = torch.inf
    return x


def poisoned(shape: tuple[int, ...] | torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """An output that betrays every element left unwritten."""
    return torch.full(tuple(shape), torch.nan, dtype=dtype, device=DEVICE)


ROWS = 1024  # the rule is about the worst of a thousand rows
_AT_ONCE = 2**25  # elements


def thousand_rows(length: int, dtype: torch.dtype, offset: int = 0) -> Iterable[torch.Tensor]:
    """ROWS random rows, as many at a time as are small in memory."""
    count = max(1, min(ROWS, _AT_ONCE // length))
    for first in range(0, ROWS, count):
        yield random_rows(min(count, ROWS - first), length, dtype, offset, seed=first << 32)


def exact(name: str, x: torch.Tensor, axis: int = -1) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax, log_softmax or logsumexp of x in float64, log s from the terms besides one maximum; and m."""
    x = x.double()
    m, first = x.max(axis, keepdim=True)
    log_s = torch.log1p((x - m).exp().scatter(axis, first, 0.0).sum(axis, keepdim=True))
    found = m + log_s if name == "logsumexp" else (x - m) - log_s
    found = found.exp() if name == "softmax" else found
    plain = getattr(torch, name)
    if name == "logsumexp":
        return torch.where(m.isfinite(), found, plain(x, axis, keepdim=True)).squeeze(axis), m.squeeze(axis)
    return torch.where(m.isfinite(), found, plain(x, axis)), m


def errors(name: str, x: torch.Tensor, result: torch.Tensor, axis: int = -1) -> tuple[float, float]:
    """The worst errors of our softmax, log_softmax or logsumexp of x and of torch's, in the rule's units."""
    truth, m = exact(name, x, axis)
    return worst_ulps(result, truth, m), worst_ulps(torchs(name, x, result.dtype, axis), truth, m)


def torchs(name: str, x: torch.Tensor, dtype: torch.dtype, axis: int = -1) -> torch.Tensor:
    """torch's result, computed in the wider of the two dtypes."""
    wide = x.to(torch.promote_types(x.dtype, dtype))
    return getattr(torch, name)(wide, axis).to(dtype)


def assert_as_accurate_as_torch(name: str, x: torch.Tensor, result: torch.Tensor, axis: int = -1) -> None:
    """The rule on the rows at hand, be they few; results of 16 bits are rounded once; fp64 keeps to fixed bounds."""
    what = name, tuple(x.shape), x.stride(), x.dtype, result.dtype
    if result.dtype == torch.float64:
        truth, m = exact(name, x, axis)
        bound = 20 if name == "softmax" else 6 + error(torchs(name, x, result.dtype, axis), truth, m)
        assert error(result, truth, m) <= bound, what
        return
    ours, peer = errors(name, x, result, axis)
    assert result.dtype.itemsize > 2 or ours <= ONCE, (ours, what)
    assert_no_worse(ours, peer)


ONCE = 0.52  # units in the last place of a result that is rounded once, from fp32


def error(got: torch.Tensor, truth: torch.Tensor, floor: torch.Tensor | float = 0.0) -> float:
    """The worst |got - truth| in eps of max(|truth|, floor); infinite where NaN or infinities differ."""
    unit = EPS[got.dtype]
    exact, got = truth.double(), got.double()
    same = (got == exact) | (got.isnan() & exact.isnan())
    floor_ = torch.as_tensor(floor, dtype=torch.float64, device=got.device).abs()
    # Below the smallest normal number there are fewer digits, or none.
    scale = torch.maximum(exact.abs(), torch.maximum(floor_, torch.full_like(exact, _TINY[unit])))
    wrong = torch.where(same, torch.zeros_like(exact), (got - exact).abs() / (unit * scale))
    return float(torch.nan_to_num(wrong, nan=torch.inf).max()) if wrong.numel() else 0.0


_TINY = {2.0**-10: 2.0**-14, 2.0**-7: 1e-36, 2.0**-23: 1e-36, 2.0**-52: 1e-300}

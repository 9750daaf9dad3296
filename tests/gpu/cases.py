"""Sizes by regime, random and special rows, references in float64, and one measure of error."""

from __future__ import annotations

import torch

DEVICE = "cuda"
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
EPS = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, torch.float32: 2.0**-23, torch.float64: 2.0**-52}

LENGTHS = {
    "less than a word": (1, 2, 3, 7),
    "around the words of one warp": (8, 9, 31, 64, 65, 100, 255, 256, 257, 1000, 1023, 1024, 1025),
    "around one block": (2049, 4096, 5000, 8191, 16384, 16385),
    "clusters, even and uneven": (32000, 50257, 65536, 65537, 131072, 200001),
    "the last that registers hold, and shared memory": (262144, 262145, 400003),
}
LONG = {"shared memory to the brim, then split": (786432, 1048576, 1600001)}


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

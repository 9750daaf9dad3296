"""Arrays of either kind from plain data, and plain float64 from arrays of any kind."""

import numpy as np
import torch

INF, NAN = float("inf"), float("nan")
FLOATS = ("float16", "bfloat16", "float32", "float64")


def make(kind, data, dtype="float32"):
    """data as a NumPy array or a torch tensor."""
    if kind == "torch":
        return torch.as_tensor(np.asarray(data, dtype=np.float64) if dtype in FLOATS else data).to(
            getattr(torch, dtype)
        )
    return np.array(data, dtype=dtype)


def float64(x):
    """The numbers of x, of whatever library, as a float64 NumPy array."""
    if isinstance(x, torch.Tensor):
        return x.detach().to(torch.float64).numpy()
    return np.asarray(x, dtype=np.float64)


def poisoned(kind, shape, dtype="float32"):
    """An array full of NaN: whatever is not written shows."""
    return make(kind, np.full(shape, NAN), dtype)


def random(shape, seed=0, spread=3.0):
    """Normal float64 numbers, the same every time."""
    return np.random.default_rng(seed).normal(size=shape) * spread


def same_bits(a, b):
    """Whether two arrays of one kind hold the same bits (NaN included)."""
    if isinstance(a, torch.Tensor):
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.itemsize]
        return a.dtype == b.dtype and torch.equal(a.detach().view(bits), b.detach().view(bits))
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def same_numbers(a, b):
    """Whether two NumPy arrays hold the same bits, but for what a NaN looks like."""
    return same_bits(np.where(np.isnan(a), np.nan, a), np.where(np.isnan(b), np.nan, b)) and a.dtype == b.dtype

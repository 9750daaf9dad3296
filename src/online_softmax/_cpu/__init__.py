"""What the native CPU kernels share: how many threads they use, and which instruction set they were built for."""

from __future__ import annotations

import os

from . import _native as _native  # for the operations too

_threads: int | None = None


def set_num_threads(n: int) -> None:
    """Use at most `n` threads for NumPy arrays; tensors follow ``torch.set_num_threads``."""
    global _threads
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"n must be an int, got {type(n).__name__}")
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    _threads = n


def num_threads() -> int:
    """How many threads NumPy arrays are computed with: all cores this process may use, unless set."""
    return _threads or available_cores()


def available_cores() -> int:
    """How many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe() -> str:
    """The build and the threads in one line, for ``online-softmax doctor``."""
    return f"{instruction_set()}, {num_threads()} threads"


def instruction_sets() -> list[str]:
    """The builds of the kernels that this machine can run, best first."""
    return list(_native.instruction_sets())


def instruction_set() -> str:
    """The build in use: the best, unless a test has chosen another."""
    return str(_native.instruction_set())


def use_instruction_set(name: str) -> None:
    """Choose another build of the kernels, for tests and benchmarks."""
    if not _native.use_instruction_set(name):
        raise ValueError(f"name must be one of {instruction_sets()}, got {name!r}")

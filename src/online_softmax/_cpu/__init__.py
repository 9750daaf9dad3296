"""What the native CPU kernels share: how many threads they use, and which instruction set they were built for."""

from __future__ import annotations

import os

from .._arguments import integer
from . import _native as _native  # for the operations too

_threads: int | None = None
_MOST_THREADS = max(64, 4 * (os.cpu_count() or 1))


def set_num_threads(n: int) -> None:
    """Compute NumPy arrays on the CPU with at most so many threads; tensors follow ``torch.set_num_threads``.

    Results do not depend on the number of threads.

    Parameters
    ----------
    n : int
        At least 1.  The default is the number of cores this process may run on; beyond four times the machine's
        cores (or 64) no further threads are started.

    Raises
    ------
    TypeError
        If n is no int.
    ValueError
        If n is below 1.
    """
    global _threads
    n = integer("n", n)
    if n < 1:
        raise ValueError(f"n is {n}; wanted at least 1")
    _threads = min(n, _MOST_THREADS)


def set_kept_memory(n_bytes: int) -> None:
    """Keep at most so much memory of freed CPU results for the next ones.

    Touching fresh memory takes the system longer than computing what goes there, so large results (a million elements
    and more) use the memory of freed ones again.  What is kept counts as resident until the system is short of memory
    and takes it back.  The default is an eighth of the machine's memory.

    Parameters
    ----------
    n_bytes : int
        The limit in bytes; 0 keeps nothing.  What is kept beyond it is given back to the system at once.

    Raises
    ------
    TypeError
        If n_bytes is no int.
    ValueError
        If n_bytes is negative.
    """
    n_bytes = integer("n_bytes", n_bytes)
    if n_bytes < 0:
        raise ValueError(f"n_bytes is {n_bytes}; wanted at least 0")
    _native.limit_kept_memory(n_bytes)


def kept_memory_limit() -> int:
    """How many bytes of freed results are kept at most."""
    return _native.kept_memory_limit()


def num_threads() -> int:
    """How many threads NumPy arrays are computed with: all cores this process may use, unless set."""
    return _threads or available_cores()


def available_cores() -> int:
    """How many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe() -> str:
    """The build, the threads and the memory kept in one line, for ``online-softmax doctor``."""
    return f"{instruction_set()}, {num_threads()} threads, keeps {kept_memory_limit() / 2**30:.1f} GiB of freed results"


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

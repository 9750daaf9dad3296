"""steps.py by the native kernels, in place, and tiles dealt to threads.

Tensors: every thread computes whole tiles with single-threaded matrix products.  A product and an update shared between
all threads would have them wait for one another at every step, twice a tile, and would change bits with their number.
NumPy: its matrix products bring their own threads, and the tiles run one after the other.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from ..._cpu import _native
from ..._cpu.arrays import argument, threads_for

_FEWEST_SCORES = 1 << 20  # fewer are done before threads have started


def update(scores: Any, m: Any, s: Any, v: Any, first: int | None) -> tuple[Any, Any, Any, Any]:
    """steps.update, in place."""
    keys, queries = scores.shape[-1], scores.shape[-2]
    arrays = argument(m), argument(s), argument(v)
    _native.attention_update(argument(scores), keys, queries, first, *arrays, threads_for(scores))
    return scores, m, s, v


def gradient(scores: Any, grad_weights: Any, lse: Any, lse_low: Any, delta: Any, first: int | None) -> tuple[Any, Any]:
    """steps.gradient, in place."""
    keys, queries = scores.shape[-1], scores.shape[-2]
    rows = [contiguous(each) for each in (lse, lse_low, delta)]  # held until the kernel has read them
    one, two, three = (argument(each) for each in rows)
    grad = argument(grad_weights)
    _native.attention_gradient(argument(scores), keys, queries, first, grad, one, two, three, threads_for(scores))
    return scores, grad_weights


def run(work: Callable[[Any], Any], jobs: list[Any], like: Any, scores: int) -> list[Any]:
    """work(job) for each job; for tensors on as many threads as torch uses."""
    threads = 1 if isinstance(like, np.ndarray) else min(sys.modules["torch"].get_num_threads(), len(jobs))
    if threads < 2 or scores < _FEWEST_SCORES or not _can_compute_alone():
        return [work(job) for job in jobs]
    torch = sys.modules["torch"]
    inference = torch.is_inference_mode_enabled()

    def unrecorded(job: Any) -> Any:
        with torch.inference_mode(inference), torch.no_grad():  # both are a thread's own
            return work(job)

    with ThreadPoolExecutor(threads, initializer=_compute_alone) as pool:
        return list(pool.map(unrecorded, jobs))


def _compute_alone() -> None:
    """Make the calling thread, a new one, compute its matrix products by itself."""
    sys.modules["torch"].get_num_threads()  # torch sets up a thread at its first call, and would undo the limit later
    _openmp_limit()(1)


@cache
def _can_compute_alone() -> bool:
    """Whether a thread's own limit reaches torch; where it does not (no OpenMP), torch's threads do the work."""

    def limited() -> bool:
        _compute_alone()
        return bool(sys.modules["torch"].get_num_threads() == 1)

    try:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(limited).result()
    except (AttributeError, OSError):
        return False


@cache
def _openmp_limit() -> Callable[[int], None]:
    """omp_set_num_threads of the OpenMP library torch has loaded: it concerns the calling thread only."""
    limit: Callable[[int], None] = ctypes.CDLL(None).omp_set_num_threads
    return limit


def contiguous(x: Any) -> Any:
    """x itself where its elements lie side by side in order, else a copy."""
    if isinstance(x, np.ndarray):
        return np.require(x, requirements=["C", "A"])
    return x.contiguous()

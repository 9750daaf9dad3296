"""The rungs on the CPU: C++ on NumPy arrays, the rows shared out to all cores."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from .rung import Answer, Arrays, Rung, make

DTYPES = ("float32", "float64")
# The first shape's rows stay in a core's own cache between sweeps; of the second, no row fits any cache.
SHAPES = ((2048, 16384), (4, 1 << 23))
ROUNDS = 7


def missing() -> str | None:
    """Why the rungs cannot run here; None when they can."""
    try:
        from . import _rungs  # noqa: F401
    except ImportError as error:
        return f"the ladder's C++ rungs were not built or do not load ({error})"
    return None


def describe() -> dict[str, Any]:
    """What the figures depend on besides the machine."""
    from . import _rungs

    return {"threads": _threads(), "instruction set": _rungs.instruction_set()}


def random_arrays(rows: int, columns: int, dtype: str) -> Arrays:
    """Random normal logits times three, and room for the results."""
    generator = np.random.default_rng(17)
    logits = np.empty((rows, columns), dtype)
    for row in logits:
        row[:] = 3 * generator.standard_normal(columns, np.float32)
    return from_logits(logits, generator.integers(0, columns, rows))


def from_logits(logits: np.ndarray, target: np.ndarray) -> Arrays:
    """Arrays around given logits."""
    loss = np.empty(len(logits), logits.dtype)
    return Arrays(logits, target, np.empty_like(logits), np.empty_like(logits), loss)


def rungs() -> list[Rung]:
    """All rungs, in the order of the ladder."""
    return [
        make("unsafe", "2", partial(_softmax, "unsafe"), safe=False),
        make("naive", "3", partial(_softmax, "naive")),
        make("three-pass", "3", partial(_softmax, "three_pass")),
        make("online, by element", "2", partial(_softmax, "online_element")),
        make("online", "2", partial(_softmax, "online")),
        make("online, then a loss", "2 + 1", _unfused, safe=False),
        make("fused", "2", _fused),
    ]


def copy(arrays: Arrays) -> None:
    """What every softmax is measured against: each element read once and written once."""
    _on_all_cores(lambda part: np.copyto(arrays.result[part], arrays.logits[part]), arrays)


def seconds(call: Callable[[], Any]) -> float:
    """One call by the wall clock."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _softmax(name: str, arrays: Arrays) -> Answer:
    _run(name, arrays, arrays.logits, arrays.result)
    return Answer(arrays.result)


def _unfused(arrays: Arrays) -> Answer:
    _run("online", arrays, arrays.logits, arrays.probabilities)
    _run("loss", arrays, arrays.probabilities, arrays.result)
    return Answer(arrays.result, arrays.loss)


def _fused(arrays: Arrays) -> Answer:
    _run("fused", arrays, arrays.logits, arrays.result)
    return Answer(arrays.result, arrays.loss)


def _run(name: str, arrays: Arrays, logits: np.ndarray, result: np.ndarray) -> None:
    from . import _rungs

    def run(part: slice) -> None:
        _rungs.run(name, logits[part], result[part], arrays.target[part], arrays.loss[part])

    _on_all_cores(run, arrays)


def _on_all_cores(task: Callable[[slice], None], arrays: Arrays) -> None:
    rows, count = len(arrays.logits), _threads()
    bounds = [rows * i // count for i in range(count + 1)]
    parts = [slice(a, b) for a, b in pairwise(bounds) if a < b]
    list(_pool().map(task, parts))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_threads())


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

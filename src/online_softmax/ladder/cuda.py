"""The rungs on the GPU: CUDA C++ compiled and launched by the library's own path, on torch tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .rung import Answer, Arrays, Rung, make

DTYPES = ("float32", "float16", "bfloat16", "float64")
SHAPES = ((8192, 32768),)
ROUNDS = 21
ELEMENTS = {"float32": "float", "float64": "double", "float16": "float16", "bfloat16": "bfloat16"}
FILES = ("unsafe", "naive", "three_pass", "online", "loss", "fused")
ONE_THREAD_A_ROW = ("unsafe", "naive")
_THREADS_A_BLOCK = 1024
_ROWS_A_BLOCK = 32  # one thread a row: small blocks, so that few rows still reach many multiprocessors


def missing() -> str | None:
    """Why the rungs cannot run here; None when they can."""
    try:
        from .. import _cuda
    except ImportError as error:
        return f"the CUDA kernels are not part of this installation ({error})"
    reason: str | None = _cuda.availability()
    return reason


def describe() -> dict[str, Any]:
    """What the figures depend on besides the machine."""
    import torch

    return {"GPU": torch.cuda.get_device_name()}


def random_arrays(rows: int, columns: int, dtype: str) -> Arrays:
    """Random normal logits times three, and room for the results."""
    import torch

    generator = torch.Generator("cuda").manual_seed(17)
    logits = 3 * torch.randn(rows, columns, device="cuda", dtype=getattr(torch, dtype), generator=generator)
    target = torch.randint(columns, (rows,), device="cuda", generator=generator)
    return _around(logits, target)


def from_logits(logits: np.ndarray, target: np.ndarray, dtype: str) -> Arrays:
    """Arrays around given logits."""
    import torch

    return _around(torch.tensor(logits, device="cuda").to(getattr(torch, dtype)), torch.tensor(target, device="cuda"))


def rungs() -> list[Rung]:
    """All rungs, in the order of the ladder."""
    return [
        make("unsafe", "2", partial(_softmax, "unsafe"), safe=False),
        make("naive", "3", partial(_softmax, "naive"), idea="one thread a row; the maximum is subtracted"),
        make("three-pass", "3", partial(_softmax, "three_pass"), idea="one block a row, shuffles, shared memory"),
        make("online", "2", partial(_softmax, "online"), idea="a running (m, s) a thread, merged by shuffles"),
        make("online, then a loss", "2 + 1", _unfused, safe=False),
        make("fused", "2", _fused),
    ]


def copy(arrays: Arrays) -> None:
    """What every softmax is measured against: each element read once and written once."""
    arrays.result.copy_(arrays.logits)


def seconds(call: Callable[[], Any]) -> float:
    """One call between two events on the device."""
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def _around(logits: Any, target: Any) -> Arrays:
    import torch

    number = torch.float64 if logits.dtype == torch.float64 else torch.float32
    loss = torch.empty(len(logits), device="cuda", dtype=number)
    return Arrays(logits, target, torch.empty_like(logits), torch.empty_like(logits), loss)


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


def _run(name: str, arrays: Arrays, logits: Any, result: Any) -> None:
    from .._cuda.compile import Source
    from .._cuda.launch import load

    rows, columns = logits.shape
    source = Source(f"ladder/cuda/{name}.cu", "rung", (("ELEMENT", ELEMENTS[str(logits.dtype).split(".")[1]]),))
    one_thread = name in ONE_THREAD_A_ROW
    kernel = load(logits.device.index, source, _ROWS_A_BLOCK if one_thread else _THREADS_A_BLOCK)
    pointers = [array.data_ptr() for array in (logits, arrays.target, result, arrays.loss)]
    kernel(-(-rows // _ROWS_A_BLOCK) if one_thread else rows, *pointers, rows, columns)

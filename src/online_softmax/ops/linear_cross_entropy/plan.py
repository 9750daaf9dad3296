"""How much is taken at a time.  Chosen from shapes and device alone, so that a call gives the same bits every time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

# Rows that products need on a GPU to run at full speed, and to be worth one more sweep over the sum of the weight's
# gradient; and which part of the device's memory a chunk of more rows may take.  A chunk that is the whole batch is
# still a third of what an unfused step takes: logits, log-probabilities and gradient.
GPU_ROWS = 4096
GPU_SHARE = 32
# On a CPU an eighth of the batch, but rows enough for its matrix products, and at most so many bytes of logits.
CPU_SHARE = 8
CPU_ROWS = 256
CPU_BYTES = 2**26
CPU_LEAST_ROWS = 64
# Bytes that memory="least" takes: of a chunk of logits and, on a GPU, of the fp32 sum of the gradient that every chunk
# adds to; at least nine sixteenths are for the chunk.  And how few classes, or rows, are still worth a product.
LEAST_BYTES = {"cuda": 57 * 2**23, "cpu": 2**24}
LEAST_CLASSES = 512
LEAST_ROWS = 2048
BY_ROWS = "least, by rows"
# Classes that the row kernels of a GPU take without a thread idle: a chunk has a multiple of them, if it has so many.
GPU_CLASSES = 4096


@lru_cache(maxsize=1024)
def row_chunks(
    rows: int, hidden: int, classes: int, itemsize: int, device: str, sums: bool, device_bytes: int
) -> tuple[slice, ...]:
    """Slices of nearly one length that cover all rows."""
    at_once = rows_at_once(rows, hidden, classes, itemsize, device, sums, device_bytes)
    return tuple(even(rows, at_once, 1 if device == "cpu" else 128))


def rows_at_once(
    rows: int, hidden: int, classes: int, itemsize: int, device: str, sums: bool, device_bytes: int = 0
) -> int:
    """Rows of logits held at a time; `sums` says that the weight's gradient has to be summed over chunks.

    Such a sum is kept in fp32, in 4 · hidden bytes a class.  Where the whole batch's logits take no more than a chunk
    and that sum would, they are one chunk: nothing is summed, and each product runs once.
    """
    fit = max(GPU_ROWS, device_bytes // GPU_SHARE // max(classes * itemsize, 1))
    if device == "cpu":
        fit = max(CPU_LEAST_ROWS, min(max(CPU_ROWS, rows // CPU_SHARE), CPU_BYTES // max(classes * itemsize, 1)))
    without_a_sum = fit + (4 * hidden) // itemsize if sums and itemsize < 4 else fit
    return rows if rows <= without_a_sum else fit


def class_chunks(rows: int, hidden: int, classes: int, itemsize: int, device: str) -> list[slice]:
    """Slices of one length, but for the last, that cover all classes."""
    at_once = classes_at_once(rows, hidden, itemsize, device)
    return list(even(classes, at_once, 1 if device == "cpu" else _multiple(at_once)))


def classes_at_once(rows: int, hidden: int, itemsize: int, device: str) -> int:
    """Columns of logits held at a time with memory="least"."""
    at_once = max(LEAST_CLASSES, _least_logits(rows, hidden, itemsize, device) // max(rows * itemsize, 1))
    return at_once if device == "cpu" else at_once // _multiple(at_once) * _multiple(at_once)


def _multiple(classes: int) -> int:
    return GPU_CLASSES if classes >= GPU_CLASSES else 64


def goes_by_rows(rows: int, hidden: int, classes: int, itemsize: int, device: str) -> bool:
    """Whether memory="least" takes rows in chunks, which saves a product: on a GPU, where they and the sum of the
    weight's gradient fit in what chunks of classes and the sum of the input's would take."""
    if device == "cpu" or classes <= classes_at_once(rows, hidden, itemsize, device):
        return False
    return least_rows(rows, hidden, classes, itemsize) >= LEAST_ROWS


def least_rows(rows: int, hidden: int, classes: int, itemsize: int) -> int:
    """Rows that go into the memory which chunks of classes would take on a GPU."""
    memory = _least_logits(rows, hidden, itemsize, "cuda") + _fp32_sum(rows, hidden, itemsize)
    return (memory - _fp32_sum(classes, hidden, itemsize)) // (classes * itemsize) // 128 * 128


def _least_logits(rows: int, hidden: int, itemsize: int, device: str) -> int:
    """Bytes of a chunk of classes with memory="least"."""
    if device == "cpu":
        return LEAST_BYTES["cpu"]
    budget = LEAST_BYTES["cuda"]
    return max(budget - _fp32_sum(rows, hidden, itemsize), budget * 9 // 16)


def _fp32_sum(lines: int, hidden: int, itemsize: int) -> int:
    """Bytes of an fp32 sum beside a gradient of fewer bits."""
    return 4 * lines * hidden if itemsize < 4 else 0


def even(length: int, at_once: int, multiple: int = 1) -> Iterator[slice]:
    """Slices of nearly one length, at most `at_once` up to rounding to `multiple`; one empty slice for no length."""
    count = max(1, -(-length // max(at_once, 1)))
    step = -(-length // count)
    step = max(1, -(-step // multiple) * multiple)
    for start in range(0, max(length, 1), step):
        yield slice(start, min(start + step, length))

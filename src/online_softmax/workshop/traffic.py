"""Bytes that softmax moves through memory, by the number of times it reads its input."""

from __future__ import annotations

from typing import NamedTuple

SIZES = {"fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8}
WAYS = (("three passes", 3), ("online, two passes", 2), ("fused, one pass", 1))


class Traffic(NamedTuple):
    """What one way moves."""

    way: str
    reads: int
    read_bytes: int
    written_bytes: int
    milliseconds: float


def traffic(rows: int, columns: int, copies: int, dtype: str, gigabytes_per_second: float) -> list[Traffic]:
    """What each way moves for `copies` matrices of rows by columns, and the least time that takes."""
    once = rows * columns * copies * SIZES[dtype]
    return [
        Traffic(way, reads, reads * once, once, (reads + 1) * once / (gigabytes_per_second * 1e6))
        for way, reads in WAYS
    ]

"""Which kernel takes a row, in which shape: a function of the row's length, its dtype and the device's limits."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..._cuda import geometry
from ..._cuda.compile import Source
from ..._cuda.geometry import Geometry
from ..._cuda.limits import Limits
from ..._cuda.rows import NAMES

SOFTMAX, LOG_SOFTMAX, LOGSUMEXP = range(3)


class Plan(NamedTuple):
    """One way to take a row: the file, its entry points in order, the shape, and dynamic shared memory a block."""

    file: str
    entries: tuple[str, ...]
    shape: Geometry
    shared: int

    def sources(self, operation: int, dtype: torch.dtype, out: torch.dtype) -> tuple[Source, ...]:
        """One for each entry point."""
        macros = (("OPERATION", str(operation)), ("INPUT", NAMES[dtype]), ("OUTPUT", NAMES[out]), *self.shape.macros())
        return tuple(Source(f"ops/softmax/{self.file}", entry, macros) for entry in self.entries)


def forward(operation: int, words: int, itemsize: int, limits: Limits) -> Plan:
    """By lanes of a warp, by blocks and clusters that keep the row, or split over blocks and read twice."""
    short = geometry.lanes(words, most=64 if itemsize == 2 and operation != LOGSUMEXP else 128)
    if short is not None:
        return Plan("cuda.cu", ("softmax_rows",), short._replace(blocks=8 if itemsize < 8 else 1), 0)
    if operation == LOGSUMEXP:
        shape = geometry.stream(words, itemsize, limits)
        if shape is not None:
            return Plan("stream.cu", ("logsumexp_rows",), shape, 0)
    else:
        shape = geometry.forward(words, itemsize, limits)
        if shape is not None:
            return Plan("block.cu", ("softmax_blocks",), shape, shape.row_shared)
    entries = ("pieces_summarise", "pieces_merge", "pieces_write")
    return Plan("split.cu", entries, geometry.split(itemsize), 0)


def backward(words: int, itemsize: int, limits: Limits) -> Plan:
    """As forward."""
    short = geometry.lanes(words, arrays=2)
    if short is not None:
        return Plan("backward.cu", ("softmax_backward_rows",), short, 2 * short.threads * short.slots * 16)
    shape = geometry.backward(words, itemsize, limits)
    if shape is not None:
        return Plan("backward_block.cu", ("softmax_backward_blocks",), shape, 2 * shape.row_shared)
    entries = ("gradient_pieces_sum", "gradient_pieces_merge", "gradient_pieces_write")
    return Plan("backward_split.cu", entries, geometry.split(itemsize, arrays=2), 0)


def logsumexp_backward(words: int, itemsize: int) -> Plan:
    """Lanes of a warp for short rows, pieces of long ones: there is nothing to reduce."""
    shape = geometry.within_warp(words, 4) or geometry.split(itemsize)
    return Plan("logsumexp_backward.cu", ("logsumexp_backward_rows",), shape, 0)


COLUMN_THREADS = 512


def columns(
    operation: int, backward: bool, dtype: torch.dtype, out: torch.dtype, lanes: int, entry: str = "softmax_columns"
) -> Source:
    """The kernel for an axis that is not the last; `lanes` neighbouring columns a block."""
    macros = (
        ("OPERATION", str(operation)),
        ("BACKWARD", str(int(backward))),
        ("INPUT", NAMES[dtype]),
        ("OUTPUT", NAMES[out]),
        ("COLUMNS", str(lanes)),
        *Geometry(COLUMN_THREADS, COLUMN_THREADS, 1).macros(),
    )
    return Source("ops/softmax/columns.cu", entry, macros)

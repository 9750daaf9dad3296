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
    more: tuple[tuple[str, str], ...] = ()  # macros beside the shape's

    def sources(self, operation: int, dtype: torch.dtype, out: torch.dtype) -> tuple[Source, ...]:
        """One for each entry point."""
        macros = (("OPERATION", str(operation)), ("INPUT", NAMES[dtype]), ("OUTPUT", NAMES[out]), *self.shape.macros())
        macros += self.more
        return tuple(Source(f"ops/softmax/{self.file}", entry, macros) for entry in self.entries)


# Words from which rows go through shared memory, by bytes an element: measured.
_STAGED = {2: 4096, 4: 8192, 8: 8192}
_SPLIT_SUM = 4096  # words from which logsumexp, which keeps nothing, is split over blocks
_BACKWARD_STAGED = 16384


def forward(operation: int, words: int, itemsize: int, limits: Limits) -> Plan:
    """In registers, in the shared memory of a cluster, or split over blocks and read twice."""
    entries = ("pieces_summarise", "pieces_merge", "pieces_write")
    if operation == LOGSUMEXP and words > _SPLIT_SUM:
        return Plan("split.cu", entries, geometry.split(itemsize), 0)
    shape = geometry.forward(words, itemsize, limits) if words <= _STAGED[itemsize] else None
    if shape is not None:
        return Plan("cuda.cu", ("softmax_rows",), shape, shape.row_shared)
    shape = geometry.staged(words, itemsize, limits)
    if shape is not None and operation != LOGSUMEXP:  # split reads a row once where nothing is written
        return Plan("staged.cu", ("softmax_staged",), shape, shape.row_shared)
    return Plan("split.cu", entries, geometry.split(itemsize), 0)


def _two_rows(shape: Geometry) -> int:
    """Bytes that backward.cu keeps in shared memory: both arrays, of rows within a warp too."""
    return 2 * shape.threads * shape.slots * 16


def backward(words: int, itemsize: int, limits: Limits) -> Plan:
    """In shared memory while clusters can hold both arrays, or most of them; else split over blocks and read twice."""
    shape = geometry.backward(words, itemsize, limits) if words <= _BACKWARD_STAGED else None
    if shape is not None:
        return Plan("backward.cu", ("softmax_backward_rows",), shape, _two_rows(shape))
    staged = geometry.backward_staged(words, limits)
    if staged is not None:
        shape, beyond = staged
        macros = (("BEYOND", str(int(beyond))),)
        return Plan("backward_staged.cu", ("softmax_backward_rows",), shape, 2 * shape.row_shared, macros)
    shape = geometry.backward(words, itemsize, limits)
    if shape is not None:
        return Plan("backward.cu", ("softmax_backward_rows",), shape, _two_rows(shape))
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

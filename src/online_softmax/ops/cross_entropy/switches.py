"""What is compiled into a kernel of cross-entropy, and which kernel takes a row."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..._cuda import geometry
from ..._cuda.compile import Source
from ..._cuda.geometry import Geometry
from ..._cuda.limits import Limits
from ..._cuda.rows import NAMES, compute_dtype

_TARGETS = {**NAMES, torch.int32: "int", torch.int64: "long long"}


class Switches(NamedTuple):
    """What is compiled into a kernel; an option that is off costs nothing."""

    target: torch.dtype
    weighted: bool
    smoothing: bool
    scaled: bool
    softcap: bool
    z_loss: bool
    aux: bool
    gradient: bool

    @property
    def spread(self) -> bool:
        """Whether every class has target mass."""
        return self.smoothing or self.target.is_floating_point

    def macros(self) -> tuple[tuple[str, str], ...]:
        """As the kernels are compiled with them."""
        flags = {
            "PROBABILITIES": self.target.is_floating_point,
            "WEIGHTED": self.weighted,
            "SMOOTHING": self.smoothing,
            "SCALED": self.scaled,
            "SOFTCAP": self.softcap,
            "ZLOSS": self.z_loss,
            "AUX": self.aux,
            "GRADIENT": self.gradient,
        }
        return (("TARGET", _TARGETS[self.target]), *((name, str(int(on))) for name, on in flags.items()))

    def record(self) -> int:
        """Numbers in a record: kFound of row_loss.cuh."""
        return 2 + 2 * self.spread + 2 * self.aux


class Plan(NamedTuple):
    """One way to take a row: the file, its entry points in order, the shape, and dynamic shared memory a block."""

    file: str
    entries: tuple[str, ...]
    shape: Geometry
    shared: int

    def sources(self, dtype: torch.dtype, switches: Switches) -> tuple[Source, ...]:
        """One for each entry point."""
        macros = (("INPUT", NAMES[dtype]), ("OUTPUT", NAMES[dtype]), *self.shape.macros(), *switches.macros())
        return tuple(Source(f"ops/cross_entropy/{self.file}", entry, macros) for entry in self.entries)


def _shared(shape: Geometry, dtype: torch.dtype, switches: Switches) -> int:
    """The row, and WeightSlice (classes.cuh): a plane for each element of a word."""
    if not shape.row_shared or not (switches.weighted and switches.spread):
        return shape.row_shared
    plane = shape.slots * shape.group + shape.cluster + 2
    return shape.row_shared + plane * (16 // dtype.itemsize) * compute_dtype(dtype).itemsize


def plan(words: int, dtype: torch.dtype, switches: Switches, limits: Limits) -> Plan:
    """In registers while a cluster can hold the row, else split over blocks and read twice."""
    costly = switches.softcap + (switches.weighted and switches.spread) + switches.aux
    shape = geometry.cross_entropy(words, dtype.itemsize, limits, costly)
    if shape is not None:
        shared = _shared(shape, dtype, switches)
        if shared + geometry.RECORDS <= limits.shared_bytes:
            return Plan("cuda.cu", ("cross_entropy_rows",), shape, shared)
    entries = ("loss_pieces_sum", "loss_pieces_merge", "loss_pieces_write")
    return Plan("split.cu", entries, geometry.split(dtype.itemsize)._replace(blocks=1), 0)


MASS_THREADS = 512  # kMassThreads of backward.cu


def backward(words: int) -> Plan:
    """Lanes of a warp for short rows, pieces of long ones: nothing is summed over logits."""
    return Plan("backward.cu", ("cross_entropy_backward", "sum_masses"), geometry.elementwise(words), 0)

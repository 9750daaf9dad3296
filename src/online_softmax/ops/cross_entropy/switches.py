"""What is compiled into a kernel of cross-entropy, and which kernel takes a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from ..._cuda import geometry
from ..._cuda.compile import Source
from ..._cuda.geometry import Geometry
from ..._cuda.limits import Limits
from ..._cuda.rows import LABELS, NAMES
from . import numbers
from .options import Options

_TARGETS = NAMES | LABELS


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
    """One way to take a row: the file, its entry points in order, the shape, dynamic shared memory a block, and macros
    that this file alone knows."""

    file: str
    entries: tuple[str, ...]
    shape: Geometry
    shared: int
    more: tuple[tuple[str, str], ...] = ()
    given: Callable[[Options, int], tuple[int | float, ...]] = numbers.wide
    """What options become among the kernel's arguments."""

    def sources(self, dtype: torch.dtype, switches: Switches) -> tuple[Source, ...]:
        """One for each entry point."""
        macros = (
            ("INPUT", NAMES[dtype]),
            ("OUTPUT", NAMES[dtype]),
            *self.shape.macros(),
            *switches.macros(),
            *self.more,
        )
        return tuple(Source(f"ops/cross_entropy/{self.file}", entry, macros) for entry in self.entries)


def _staged(words: int, dtype: torch.dtype, switches: Switches, limits: Limits) -> Plan | None:
    """In registers and shared memory."""
    if switches.softcap:
        return _capped(words, dtype, limits)
    found = geometry.loss_staged(words, limits, switches.weighted and switches.spread, switches.gradient)
    if found is None:
        return None
    shape, held = found
    kept = shape.slots - held
    macros = ("CHUNK", str(1 if kept % 2 else 2)), ("HELD", str(held))
    return Plan("staged.cu", ("cross_entropy_staged",), shape, kept * shape.threads * 16, macros, numbers.packed)


def _capped(words: int, dtype: torch.dtype, limits: Limits) -> Plan | None:
    """The same where tangents are costly."""
    found = geometry.loss_capped(words, dtype.itemsize, limits)
    if found is None:
        return None
    shape, held, chunk = found
    macros = ("CHUNK", str(chunk)), ("HELD", str(held))
    given = numbers.capped_binary if dtype.itemsize == 2 else numbers.capped
    return Plan("softcap.cu", ("cross_entropy_softcap",), shape, shape.slots * shape.threads * 16, macros, given)


def batch(rows: int, words: int) -> Plan | None:
    """For labels, without aux: one launch, where one block holds all rows."""
    shape = geometry.loss_batch(words)
    if shape is None or not 0 < rows <= shape.threads // shape.group:
        return None
    return Plan("batch.cu", ("cross_entropy_batch",), shape, 0)


def plan(words: int, dtype: torch.dtype, switches: Switches, limits: Limits) -> Plan:
    """Once read while a cluster can hold the row, else split over blocks and read twice."""
    of_indices = not (switches.target.is_floating_point or switches.aux)
    short = geometry.within_warp(words, 4) is not None
    if of_indices and dtype.itemsize < 8 and not short:
        found = _staged(words, dtype, switches, limits)
    else:
        costly = switches.softcap + (switches.weighted and switches.spread) + switches.aux
        shape = geometry.loss_in_registers(words, dtype.itemsize, limits, costly)
        fits = shape is not None and shape.row_shared + geometry.RECORDS <= limits.shared_bytes
        found = Plan("cuda.cu", ("cross_entropy_rows",), shape, shape.row_shared) if shape and fits else None
    if found is not None:
        return found
    entries = ("loss_pieces_sum", "loss_pieces_merge", "loss_pieces_write")
    return Plan("split.cu", entries, geometry.split(dtype.itemsize)._replace(blocks=1), 0)


MASS_THREADS = 512  # kMassThreads of backward.cu


def backward(words: int) -> Plan:
    """Lanes of a warp for short rows, pieces of long ones: nothing is summed over logits."""
    return Plan("backward.cu", ("cross_entropy_backward", "sum_masses"), geometry.elementwise(words), 0)

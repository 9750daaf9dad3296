"""The CUDA kernels of merging, as they are compiled; needs no GPU."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..._cuda.compile import Source
from ..._cuda.rows import NAMES

THREADS = 256
LISTED = 32
"""Partial results that travel as pointers of their own; more are stacked first."""
_UNROLLED = 8  # stacked ones that a kernel is compiled for; more are counted at run time


class Shape(NamedTuple):
    """What a kernel is compiled for (merge.cuh)."""

    element: torch.dtype
    compute: torch.dtype
    width: int
    lanes: int
    once: bool
    chunk: int
    wide: bool
    partials: int
    """0: known at run time."""
    stacked: bool
    backward: bool


def shape_of(
    element: torch.dtype,
    compute: torch.dtype,
    size: int,
    offset: int,
    wide: bool,
    count: int,
    stacked: bool,
    backward: bool,
) -> Shape:
    """The kernel for `count` partial results, whose rows of `size` elements begin `offset` bytes off 16 at worst."""
    span = 16 | offset | size * element.itemsize
    width = max((span & -span) // element.itemsize, 1)
    lanes = min(_power(size // width), 32)
    most = 4 if backward else 8  # of what is read at once: enough to wait for memory together, few enough registers
    return Shape(
        element,
        compute,
        width,
        lanes,
        size // width <= lanes,
        min(_power(count), most, lanes),
        wide,
        0 if stacked and count > _UNROLLED else count,
        stacked,
        backward,
    )


def _power(count: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(count - 1, 0).bit_length()


def source(shape: Shape) -> Source:
    """The kernel of a shape."""
    macros = [
        ("ELEMENT", NAMES[shape.element]),
        ("COMPUTE", NAMES[shape.compute]),
        ("WIDTH", str(shape.width)),
        ("ROW_LANES", str(shape.lanes)),
        ("ONCE", str(int(shape.once))),
        ("CHUNK", str(shape.chunk)),
        ("INDEX", "uint64" if shape.wide else "uint32"),
        ("PARTIALS", str(shape.partials)),
        ("STACKED", str(int(shape.stacked))),
        ("THREADS", str(THREADS)),
    ]
    if not shape.stacked:
        kinds = [("OUT", "const Element*"), ("LSE", "const Compute*")]
        if shape.backward:
            kinds += [("GRAD_OUT", "Element*"), ("GRAD_LSE", "Compute*")]
        for name, declared in kinds:
            names = [f"{name.lower()}{i}" for i in range(shape.partials)]
            macros.append((f"{name}S", ", ".join(names)))
            macros.append((f"{name}_PARAMETERS", ", ".join(f"{declared} {each}" for each in names)))
    file = "cuda_backward.cu" if shape.backward else "cuda.cu"
    entry = "merge_partials_backward" if shape.backward else "merge_partials"
    return Source(f"ops/attention/{file}", entry, tuple(macros))

"""The CUDA kernels of merging, as they are compiled; needs no GPU."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..._cuda.compile import Source
from ..._cuda.rows import NAMES


class Shape(NamedTuple):
    """What a kernel is compiled for."""

    element: torch.dtype
    compute: torch.dtype
    width: int
    chunk: int
    wide: bool
    partials: int
    """0: stacked."""
    lanes: int
    """0: the forward kernel."""


def source(shape: Shape) -> Source:
    """The kernel of a shape."""
    macros = [
        ("ELEMENT", NAMES[shape.element]),
        ("COMPUTE", NAMES[shape.compute]),
        ("WIDTH", str(shape.width)),
        ("CHUNK", str(shape.chunk)),
        ("INDEX", "uint64" if shape.wide else "uint32"),
        ("PARTIALS", str(shape.partials)),
    ]
    kinds = [("OUT", "const Element*"), ("LSE", "const Compute*")]
    if shape.lanes:
        macros.append(("ROW_LANES", str(shape.lanes)))
        kinds += [("GRAD_OUT", "Element*"), ("GRAD_LSE", "Compute*")]
    if shape.partials:
        for name, declared in kinds:
            names = [f"{name.lower()}{i}" for i in range(shape.partials)]
            macros.append((f"{name}S", ", ".join(names)))
            macros.append((f"{name}_PARAMETERS", ", ".join(f"{declared} {each}" for each in names)))
    file = "cuda_backward.cu" if shape.lanes else "cuda.cu"
    entry = "merge_partials_backward" if shape.lanes else "merge_partials"
    return Source(f"ops/attention/{file}", entry, tuple(macros))

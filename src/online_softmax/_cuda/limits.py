"""What a device can do, as far as kernels are shaped by it."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


class Limits(NamedTuple):
    arch: str  # what NVRTC compiles for
    largest_cluster: int  # blocks that may share a row; 1 where there are no clusters; 0: none may keep one
    shared_bytes: int  # shared memory a block may ask for
    processors: int
    resident_blocks: int  # that a multiprocessor holds, however small they are


# Compute capability -> (largest cluster, KiB of shared memory a block, blocks a multiprocessor holds).  Sixteen blocks
# a cluster is beyond the eight that every device with clusters grants: `Loaded` asks the device and
# `load_first_fitting` falls back.
_FAMILIES = {
    (8, 0): (1, 163, 32),
    (8, 6): (1, 99, 16),
    (8, 7): (1, 163, 16),
    (8, 9): (1, 99, 24),
    (9, 0): (16, 227, 32),
    (10, 0): (16, 227, 32),
    (10, 3): (16, 227, 32),
    (11, 0): (16, 227, 24),
    (12, 0): (8, 99, 24),
    (12, 1): (8, 99, 24),
}


def limits_of(capability: tuple[int, int], processors: int = 1) -> Limits:
    """The limits of a compute capability; of one not known here, what every later device has had."""
    unknown = (8 if capability >= (9, 0) else 1, 99, 16)
    cluster, kilobytes, blocks = _FAMILIES.get(capability, unknown)
    return Limits(f"sm_{capability[0]}{capability[1]}", cluster, kilobytes * 1024, processors, blocks)


OLDEST = 8  # major compute capability: asynchronous copies and bfloat16


@cache
def device_limits(index: int) -> Limits:
    """The limits of one device; a RuntimeError for one that is too old, beside newer ones."""
    import torch

    properties = torch.cuda.get_device_properties(index)
    if properties.major < OLDEST:
        raise RuntimeError(
            f"cuda:{index}, {properties.name}, has compute capability {properties.major}.{properties.minor}; "
            f"the CUDA kernels need {OLDEST}.0 or newer: use impl='reference' for tensors that lie there"
        )
    return limits_of((properties.major, properties.minor), properties.multi_processor_count)

"""From the bytes of a row to the shape of the kernel that takes it: one table for all operations.

A row is split into 16-byte words.  Its threads are `group` lanes of a warp, a block, or a cluster of blocks, and a thread
holds `slots` words in registers.  The choice depends on the row's length and element type alone, never on how many rows
there are, so that a row's result does not either; and the steps are coarse enough that a thousand lengths share a few
dozen kernels, yet fine enough that few slots idle.
"""

from __future__ import annotations

from typing import NamedTuple

from .limits import Limits

_THREADS = (64, 128, 192, 256, 320, 384, 448, 512)


class Geometry(NamedTuple):
    group: int  # threads that share a row within a block
    threads: int  # threads of a block
    slots: int  # 16-byte words a thread holds
    cluster: int = 1  # blocks that share a row
    persistent: bool = False  # clusters stay and take row after row
    blocks: int = 1  # blocks that should fit one multiprocessor: bounds the registers

    @property
    def words(self) -> int:
        """16-byte words of a row it can take."""
        return self.group * self.slots * self.cluster

    @property
    def row_shared(self) -> int:
        """Bytes of shared memory that hold one block's part of a row; lanes of one warp need none."""
        return 0 if self.group <= 32 else self.group * self.slots * 16

    def macros(self) -> tuple[tuple[str, str], ...]:
        return (
            ("GROUP", str(self.group)),
            ("THREADS", str(self.threads)),
            ("SLOTS", str(self.slots)),
            ("CLUSTER", str(self.cluster)),
            ("PERSISTENT", str(int(self.persistent))),
            ("BLOCKS", str(self.blocks)),
        )


def words_of(length: int, itemsize: int, aligned: bool) -> int:
    """Words of the aligned window around a row; rows that may start anywhere need room for the worst start."""
    per_word = 16 // itemsize
    if aligned and length % per_word == 0:
        return length // per_word
    return (length + 2 * (per_word - 1)) // per_word


def within_warp(words: int, slots: int) -> Geometry | None:
    """Short rows: some lanes of a warp each, several rows a block."""
    for group in (1, 2, 4, 8, 16):
        if words <= group:
            return Geometry(group, 128, 1)
    for used in range(1, slots + 1):
        if words <= 32 * used:
            return Geometry(32, 128, used)
    return None


def within_cluster(words: int, slots: int, limits: Limits, threads: tuple[int, ...] = _THREADS) -> Geometry | None:
    """A block a row, or as many as the row needs: 2, 4, 8, 16."""
    cluster = 1
    while cluster <= limits.largest_cluster:
        for count in threads:
            if words <= count * slots * cluster:
                return Geometry(count, count, slots, cluster)
        cluster *= 2
    return None


def forward(words: int, itemsize: int, limits: Limits) -> Geometry | None:
    """softmax, log_softmax, logsumexp: 32 values a thread (16 in fp64), one row a cluster, launched once."""
    slots = 4 if itemsize == 2 else 8
    short = within_warp(words, slots)
    if short is not None:
        return short
    found = within_cluster(words, slots, limits)
    return found and found._replace(blocks=1024 // found.threads)


def cross_entropy(words: int, itemsize: int, limits: Limits, heavy: bool) -> Geometry | None:
    """Clusters that stay.  `heavy`: options that hold a second number for every element."""
    slots = 4 if itemsize == 2 else 8
    short = within_warp(words, slots)
    if short is not None:
        return short
    threads = (64, 128, 192, 256) if heavy else (64, 128, 192, 256, 320, 384)
    found = within_cluster(words, slots, limits, threads)
    if found is None:  # the longest rows: fewer threads with more to hold
        found = within_cluster(words, 2 * slots, limits, (256,)) if not heavy else None
        return found and found._replace(persistent=True, blocks=2)
    return found._replace(persistent=True, blocks=(512 if heavy else 768) // found.threads)

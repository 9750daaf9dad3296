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
RECORDS = 5 * 1024  # shared memory that the warps' records and barriers may take beside the row


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
        return 0 if self.group <= 32 else self.threads * self.slots * 16

    def grid(self, rows: int, resident: int) -> int:
        """Clusters (or blocks) to launch: `resident` is how many the device runs at once."""
        if self.group < self.threads:
            return -(-rows * self.group // self.threads)
        return min(rows, resident) if self.persistent else rows

    def pieces(self, words: int) -> int:
        """Blocks that a row of so many words is split over."""
        return -(-words // (self.group * self.slots))

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


def staged(words: int, itemsize: int, limits: Limits) -> Geometry | None:
    """Forward of rows too long for registers: kept in shared memory, by clusters that stay."""
    for slots in (8, 12, 16, 20, 24):
        shape = Geometry(512, 512, slots, limits.largest_cluster, persistent=True, blocks=2 if slots <= 12 else 1)
        if words <= shape.words and shape.row_shared + RECORDS <= limits.shared_bytes:
            return shape if 2 * (shape.row_shared + RECORDS) <= limits.shared_bytes else shape._replace(blocks=1)
    return None


def backward(words: int, itemsize: int, limits: Limits) -> Geometry | None:
    """softmax and log_softmax backward: both arrays in shared memory, two words of a thread at a time in registers."""
    short = within_warp(words, 4)
    if short is not None:
        return short
    for slots in (4, 6, 8):
        found = within_cluster(words, slots, limits)
        if found is not None:
            blocks = 1024 // found.threads if slots == 4 else 1
            fits = 2 * found.row_shared + RECORDS <= limits.shared_bytes
            return found._replace(blocks=blocks) if fits else None
    return None


def split(itemsize: int, arrays: int = 1) -> Geometry:
    """A piece of a row that no cluster can keep."""
    slots = (4 if itemsize == 2 else 8) // arrays
    return Geometry(512, 512, slots, blocks=2)


def cross_entropy(words: int, itemsize: int, limits: Limits, heavy: bool) -> Geometry | None:
    """Clusters that stay.  `heavy`: options that hold a second number for every element."""
    slots = 4 if itemsize == 2 else 8
    short = within_warp(words, slots)
    if short is not None:
        return short
    if heavy:
        found = within_cluster(words, slots, limits, (64, 128, 192, 256))
        if found is not None:
            return found._replace(persistent=True, blocks=512 // found.threads)
        found = within_cluster(words, slots, limits, (320, 384, 448, 512))
        return found and found._replace(persistent=True, blocks=1)
    found = within_cluster(words, slots, limits, (64, 128, 192, 256, 320, 384))
    if found is not None:
        return found._replace(persistent=True, blocks=768 // found.threads)
    found = within_cluster(words, 2 * slots, limits, (256,))  # the longest rows: fewer threads with more to hold
    return found and found._replace(persistent=True, blocks=2)

"""From the bytes of a row to the shape of the kernel that takes it: one table for all operations.

A row is split into 16-byte words.  Its threads are `group` lanes of a warp, a block, or a cluster of blocks, and a
thread holds `slots` words in registers.  The choice depends on the row's length and element type alone, never on how
many rows there are, so that a row's result does not either; and the steps are coarse enough that a thousand lengths
share a few dozen kernels, yet fine enough that few slots idle.
"""

from __future__ import annotations

from typing import NamedTuple

from .limits import Limits

_THREADS = (64, 96, 128, 160, 192, 256)
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
        needed = -(-rows * self.group // self.threads)
        return min(needed, max(1, resident)) if self.persistent else needed

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


def within_cluster(
    words: int, slots: int, limits: Limits, threads: tuple[int, ...], cluster: int = 1
) -> Geometry | None:
    """A block a row, or as many as the row needs: 2, 4, 8, 16; from `cluster` on."""
    while cluster <= limits.largest_cluster:
        for count in threads:
            if words <= count * slots * cluster:
                # A short row leaves a block too little to do: several rows a block, up to 256 threads.
                return Geometry(count, count * max(1, 256 // count) if cluster == 1 else count, slots, cluster)
        cluster *= 2
    return None


def _one_block(limits: Limits) -> Limits:
    return limits._replace(largest_cluster=min(1, limits.largest_cluster))


def _first(*found: Geometry | None) -> Geometry | None:
    return next((shape for shape in found if shape is not None), None)


def forward(words: int, itemsize: int, limits: Limits) -> Geometry | None:
    """softmax, log_softmax, logsumexp: one row a cluster, launched once; 32 values a thread, 64 of 16 bits in clusters,
    where every warp pays for hearing of all others."""
    few = 4 if itemsize == 2 else 8
    short = within_warp(words, few)
    if short is not None:
        return short
    block = within_cluster(words, few, _one_block(limits), _THREADS)
    if block is not None:
        return block._replace(blocks=1024 // block.threads)
    cluster = within_cluster(words, 8, limits, (64, 96, 128, 160, 192, 256))
    if cluster is not None and itemsize > 2:
        return cluster._replace(blocks=1024 // cluster.threads)
    if cluster is not None:  # 64 values: 96 registers a thread, or 80 and three blocks where 256 threads are needed
        three = 3 * (cluster.row_shared + RECORDS) <= limits.shared_bytes
        return cluster._replace(blocks=(3 if three else 2) if cluster.threads == 256 else 640 // cluster.threads)
    widest = within_cluster(words, 16, limits, (256,)) if itemsize > 2 else None
    return widest and widest._replace(blocks=2)


def staged(words: int, itemsize: int, limits: Limits) -> Geometry | None:
    """Forward of rows too long for registers: three blocks a multiprocessor, or one that stays."""
    threads, most = (512, 8) if itemsize == 2 else (256, 16)
    cluster = 1
    while cluster <= limits.largest_cluster:
        slots = -(-words // (threads * cluster))
        shape = Geometry(threads, threads, slots + slots % 2, cluster)
        fits = limits.shared_bytes // (shape.row_shared + RECORDS // 2)
        if slots <= most and fits:
            return shape._replace(blocks=1 if itemsize == 8 else min(fits, 1536 // threads))
        cluster *= 2
    for slots in (24, 32, 40, 48, 54):
        shape = Geometry(256, 256, slots, limits.largest_cluster, persistent=True)
        if words <= shape.words and shape.row_shared + RECORDS <= limits.shared_bytes:
            return shape
    return None


def backward(words: int, itemsize: int, limits: Limits) -> Geometry | None:
    """softmax and log_softmax backward: both arrays in shared memory, two words of a thread at a time in registers."""
    short = within_warp(words, 4)
    if short is not None:
        return short
    for slots in (4, 6, 8):
        found = within_cluster(words, slots, limits, (64, 128, 192, 256, 320, 384, 448, 512))
        if found is not None:
            fits = 2 * found.row_shared + RECORDS <= limits.shared_bytes
            return found._replace(blocks=1024 // found.threads if slots == 4 else 1) if fits else None
    return None


def backward_staged(words: int, limits: Limits) -> tuple[Geometry, bool] | None:
    """Backward of long rows by the largest clusters, and whether words are left over that must be read twice."""
    cluster = limits.largest_cluster
    if cluster < 16:
        return None
    slots = -(-words // (256 * cluster))
    if slots <= 8:
        return Geometry(256, 256, slots, cluster, blocks=3), False
    for slots, blocks, most in ((6, 2, 65536), (13, 1, 131072)):
        shape = Geometry(512, 512, slots, cluster, persistent=True, blocks=blocks)
        if words <= most and blocks * (2 * shape.row_shared + RECORDS) <= limits.shared_bytes:
            return shape, words > shape.words
    return None


def split(itemsize: int, arrays: int = 1) -> Geometry:
    """A piece of a row that no cluster can keep."""
    slots = (4 if itemsize == 2 else 8) // arrays
    return Geometry(512, 512, slots, blocks=2)


def elementwise(words: int) -> Geometry:
    """Nothing to reduce: pieces of a row, or short rows whole."""
    return within_warp(words, 4) or Geometry(128, 128, 4, blocks=6)


def loss_in_registers(words: int, itemsize: int, limits: Limits, costly: int) -> Geometry | None:
    """Cross-entropy as cuda.cu takes it.  `costly` counts options that need registers for every element or record."""
    few = 4 if itemsize == 2 else 8
    short = within_warp(words, few)
    if short is not None:
        return short
    if itemsize == 8:
        few = 4
    if costly:
        most = 384 if costly == 3 else 512  # threads a multiprocessor: 168 or 128 registers each
        found = within_cluster(words, few, limits, (64, 128, 192, 256)[: 3 if costly == 3 else 4])
        found = _first(found, within_cluster(words, few, limits, (320, 384, 448, 512)[: 2 if costly == 3 else 4]))
    else:
        most = 512
        found = within_cluster(words, few, _one_block(limits), (64, 128, 192, 256))
        found = _first(found, within_cluster(words, 2 * few, limits, (64, 128, 192, 256), cluster=2))
        if limits.largest_cluster == 1:
            found, most = _first(found, within_cluster(words, 2 * few, limits, (256, 384))), 384
    return found and found._replace(blocks=max(1, most // found.threads))


# Rows of several blocks, by the size of an element: blocks that share one, words a thread, and the words they serve up
# to.  Five and seven blocks fill the device's groups of multiprocessors better than powers of two.
_LOSS_CLUSTERS = {
    2: ((1, 8, 4096), (5, 8, 10240), (7, 8, 19712), (8, 8, 32768), (16, 8, 65536)),
    4: ((1, 10, 5120), (5, 10, 16000), (8, 10, 32768), (16, 10, 40960), (16, 16, 65536)),
}
_ONE_BLOCK = (64, 96, 128, 160, 192, 256, 320, 384, 448, 512)


def loss_staged(words: int, itemsize: int, limits: Limits, capped: bool, spread: bool) -> tuple[Geometry, int] | None:
    """Cross-entropy as staged.cu takes it, and how many of a thread's words are held in registers.

    All where a block can hold the row, unless softcap costs each element so much that loops have to stay short.
    """
    for slots in (4, 8):
        count = next((threads for threads in _ONE_BLOCK if words <= threads * slots), None)
        if count is not None and not capped:
            most = 1024 if slots == 8 else 1280 if itemsize == 4 or spread else 1536
            return Geometry(count, count, slots, blocks=most // count), slots
    most = 1024 if capped else 1536 if itemsize == 2 else 1280
    for cluster, slots, longest in _LOSS_CLUSTERS[itemsize]:
        if words <= longest and cluster <= limits.largest_cluster:
            step = 64 if cluster in (8, 16) else 32
            count = max(64, -(-words // (cluster * slots * step)) * step)
            shape = Geometry(count, count, slots, cluster)
            fits = limits.shared_bytes // (shape.row_shared + RECORDS // 2)
            if fits:
                return shape._replace(blocks=min(fits, most // count)), 0
    for slots in (8, 11, 18):  # longer rows, and devices without the clusters that would do
        shape = Geometry(512, 512, slots, limits.largest_cluster)
        fits = limits.shared_bytes // (shape.row_shared + RECORDS)
        if words <= shape.words and fits:
            return shape._replace(blocks=min(fits, 2)), 0
    return None

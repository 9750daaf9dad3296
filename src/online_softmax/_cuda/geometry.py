"""From the bytes of a row to the shape of the kernel that takes it: one table for all operations.

A row is split into 16-byte words.  Its threads are `group` lanes of a warp, a block, or a cluster of blocks, and a
thread takes `slots` words, into registers, shared memory, or both.  The choice depends on the row's length and element
type alone, never on how many rows there are, so that a row's result does not either; and the steps are coarse enough
that a thousand lengths share a few dozen kernels, yet fine enough that few slots idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from .limits import Limits

RECORDS = 5 * 1024  # shared memory that the warps' records and barriers may take beside the row
_HELD = 8  # words of a thread in registers: with 64 of those, room for all else
_STREAM = 2**18  # words to which one cluster a row is enough


class Geometry(NamedTuple):
    group: int  # threads that share a row within a block
    threads: int  # threads of a block
    slots: int  # 16-byte words a thread holds
    cluster: int = 1  # blocks that share a row
    persistent: bool = False  # clusters stay and take row after row
    blocks: int = 1  # blocks that should fit one multiprocessor: bounds the registers
    held: int = 0  # of the slots, those that are in registers alone

    @property
    def words(self) -> int:
        """16-byte words of a row it can take."""
        return self.group * self.slots * self.cluster

    @property
    def row_shared(self) -> int:
        """Bytes of shared memory that hold one block's part of a row; lanes of one warp need none."""
        return 0 if self.group <= 32 else self.threads * (self.slots - self.held) * 16

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
            *((("HELD", str(self.held)),) if self.held else ()),
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


# Lanes that share a row and words of each.  Lanes without a word cost as much as those with one: steps are by two.
_LANES = ((2, 1), (2, 2), (4, 2), (8, 2), (16, 2), (32, 2), (32, 4))
_LANES_OF_TWO = ((2, 1), (4, 1), (8, 1), (16, 1), (32, 1), (32, 2), (32, 4))  # where two arrays are read


def lanes(words: int, arrays: int = 1, most: int = 128) -> Geometry | None:
    """Rows of at most `most` words: some lanes of a warp each, several rows a block."""
    shapes = _LANES if arrays == 1 else _LANES_OF_TWO
    fitting = (shape for shape in shapes if words <= shape[0] * shape[1] <= most)
    return next((Geometry(group, 128, count) for group, count in fitting), None)


# (threads that share a row in a block, words of each, blocks that share it): the first that is large enough takes a
# row.  The steps are finest where vocabularies lie.
_FORWARD = (
    *((32, 6, 1), (32, 8, 1), (64, 6, 1), (64, 8, 1), (128, 8, 1), (256, 8, 1), (256, 8, 2), (160, 10, 4), (256, 8, 4)),
    *((160, 10, 8), (256, 8, 8), (256, 10, 8), (256, 8, 16)),
)
_BACKWARD = (
    *((64, 4, 1), (64, 8, 1), (128, 8, 1), (256, 8, 1), (256, 8, 2), (256, 7, 4), (256, 8, 4)),
    *((256, 7, 8), (256, 8, 8), (384, 7, 8), (256, 8, 16)),
)
# Rows too long for registers, by how many arrays are read: threads, words of a thread and how many of them are held,
# and what part of the largest cluster shares a row.  Half of them held: a register takes two words in turn (block.cu).
# More than 512 threads are one block a multiprocessor: such clusters stay, and have the next row on its way.
_LONGER = {
    1: (
        *((160, 16, 8, 1), (512, 16, 8, 2), (320, 16, 8, 1), (384, 16, 8, 1), (512, 16, 8, 1)),
        *((1024, 12, 6, 1), (1024, 16, 8, 1)),
    ),
    2: ((256, 10, 5, 1), (224, 16, 8, 1), (256, 16, 8, 1), (704, 8, 4, 1), (768, 8, 4, 1), (1024, 8, 4, 1)),
}
# Threads a multiprocessor, by the words that each holds of all arrays.
_RESIDENT = {6: 1024, 8: 1024, 10: 1024, 16: 512}


def _first_fitting(
    words: int, limits: Limits, table: tuple[tuple[int, int, int], ...], threads_of: Callable[[int], int]
) -> Geometry | None:
    for group, slots, cluster in table:
        if words <= group * slots * cluster and cluster <= limits.largest_cluster:
            return Geometry(group, threads_of(group), slots, cluster, held=min(slots, _HELD))
    return None


def _longer(words: int, itemsize: int, arrays: int, limits: Limits) -> Geometry | None:
    """Rows too long for registers: the rest of the words in shared memory."""
    for threads, slots, held, part in _LONGER[arrays]:
        shape = Geometry(threads, threads, slots, limits.largest_cluster // part, held=held)
        fits = limits.shared_bytes // (arrays * shape.row_shared + RECORDS // 2)
        if fits and words <= shape.words and (itemsize < 8 or threads <= 512):
            blocks = 1 if itemsize == 8 else min(fits, _RESIDENT[arrays * held] // threads)
            return shape._replace(blocks=blocks, persistent=threads > 512)
    return None


def forward(words: int, itemsize: int, limits: Limits) -> Geometry | None:
    """softmax and log_softmax of rows that need more than a warp's lanes: 64 registers a thread, 1024 threads a
    multiprocessor, 128 KiB of rows in flight in registers and as much again in shared memory."""
    # One row a block, if 32 blocks of a warp find room.  The shorter 16-bit rows are fastest in half a warp.
    smallest = 32 if limits.resident_blocks >= 32 else 64
    table = ((16, 7, 1), (32, 4, 1), *_FORWARD) if itemsize == 2 else _FORWARD
    shape = _first_fitting(words, limits, table, lambda group: 256 if group < 32 else max(group, smallest))
    if shape is not None:
        return shape._replace(blocks=1 if itemsize == 8 else 1024 // shape.threads)
    return _longer(words, itemsize, 1, limits)


def stream(words: int, itemsize: int, limits: Limits) -> Geometry | None:
    """logsumexp: a warp a row, a block, or a cluster, as many words of a thread on their way as it sums."""
    if words <= 2048:
        return Geometry(32, 128, 8, blocks=8 if itemsize < 8 else 1)
    # One block a row keeps up with memory only while many rows are on their way.
    if words <= 16384:  # what is missing in a step of four words costs as much as the words
        sizes = (256, 288) if words > 8192 else (256,)
        threads = min(sizes, key=lambda count: -(-words // (4 * count)) * count)
        shape = Geometry(threads, threads, 4, blocks=1536 // threads if itemsize < 8 else 1)
    else:
        cluster = min(4 if words <= 40960 else 8, limits.largest_cluster)
        shape = Geometry(256, 256, 8, cluster, blocks=4 if itemsize < 8 else 1)
    return shape if words <= _STREAM and limits.largest_cluster else None


def backward(words: int, itemsize: int, limits: Limits) -> Geometry | None:
    """softmax and log_softmax backward of rows that need more than a warp's lanes: as forward, twice the words."""
    shape = _first_fitting(words, limits, _BACKWARD, lambda group: 256 if group < 128 else group)  # rows that share one
    if shape is not None:
        registers = 104 if shape.slots == 8 else 80
        return shape._replace(blocks=1 if itemsize == 8 else 65536 // (registers * shape.threads))
    return _longer(words, itemsize, 2, limits)


def split(itemsize: int, arrays: int = 1) -> Geometry:
    """A piece of a row that no cluster can keep."""
    slots = (4 if itemsize == 2 else 8) // arrays
    return Geometry(512, 512, slots, blocks=2)


def elementwise(words: int) -> Geometry:
    """Nothing to reduce: pieces of a row, or short rows whole."""
    return within_warp(words, 4) or Geometry(128, 128, 4 if words <= 512 else 8, blocks=6)


_LOSS_WITHIN_WARP = ((4, 1), (8, 1), (16, 1), (32, 1), (32, 2), (32, 4))  # lanes that share a row, words of each


def loss_batch(words: int) -> Geometry | None:
    """Cross-entropy as batch.cu takes it: rows as cuda.cu has them within a warp, all that there are in one block."""
    for group, slots in _LOSS_WITHIN_WARP:
        if words <= group * slots:
            return Geometry(group, 1024 if slots == 1 else 512, slots)
    return None


def loss_in_registers(words: int, itemsize: int, limits: Limits, costly: int) -> Geometry | None:
    """Cross-entropy as cuda.cu takes it.  `costly` counts options that need registers for every element or record."""
    few = 8 if itemsize == 4 else 4
    for group, slots in _LOSS_WITHIN_WARP:
        if words <= group * slots:
            return Geometry(group, 128, slots)
    most = 384 if costly == 3 else 512  # threads a multiprocessor: 168 or 128 registers each
    for threads, cluster in ((256, 1), (256, 4), (256, 16), (most, limits.largest_cluster)):
        if words <= threads * few * cluster and cluster <= limits.largest_cluster:
            return Geometry(threads, threads, few, cluster, blocks=most // threads)
    return None


_LOSS = (  # blocks that share a row, threads, words of a thread
    *((1, 64, 4), (1, 128, 4), (1, 192, 4), (1, 256, 4), (1, 384, 4), (1, 512, 4), (2, 192, 8), (2, 256, 8)),
    *((2, 320, 8), (5, 160, 8), (4, 256, 8), (4, 320, 8), (4, 320, 10), (8, 256, 8), (8, 256, 10), (16, 256, 8)),
    *((16, 256, 10), (16, 256, 16), (16, 256, 20), (16, 512, 16)),
)
_LOSS_ALONE = (  # where no gradient is written
    *((1, 64, 4), (1, 128, 4), (1, 192, 4), (1, 256, 4), (1, 384, 4), (1, 512, 4), (1, 384, 8), (1, 512, 8)),
    *((2, 256, 12), (2, 256, 14), (2, 256, 16), (3, 256, 16), (4, 256, 14), (4, 256, 16), (5, 256, 16), (6, 256, 16)),
    *((8, 256, 16), (16, 160, 15), (16, 256, 12), (16, 256, 16), (16, 256, 20), (16, 512, 16)),
)
_SMALL_CLUSTERS = (10, 12, 16, 20, 26)  # words of a thread where a device's clusters are small, or it has none


def loss_staged(words: int, limits: Limits, weighted: bool, gradient: bool) -> tuple[Geometry, int] | None:
    """Cross-entropy as staged.cu takes it, and how many of a thread's words are held in registers; the rest lies in
    shared memory.  1024 threads a multiprocessor so have 128 KiB in flight in registers and as much again beside."""
    largest = limits.largest_cluster
    if not largest:
        return None
    table: Iterable[tuple[int, int, int]] = _LOSS if gradient else _LOSS_ALONE
    if largest < 16:
        table = (*table, *((largest, 512, slots) for slots in _SMALL_CLUSTERS))
    for cluster, threads, slots in table:
        if words > cluster * threads * slots or cluster > largest:
            continue
        held = min(slots, _HELD)
        if weighted and held < slots:  # a word's weights need registers too
            held = max(0, held - 2)
        fits = limits.shared_bytes // ((slots - held) * threads * 16 + RECORDS // 2)
        if fits:
            resident = 1024 if weighted or slots > 4 else 1536
            return Geometry(threads, threads, slots, cluster, blocks=max(1, min(fits, resident // threads))), held
    return None


# The same, words held in registers at first, and words that a warp takes by one formula.
_LOSS_CAPPED = {
    2: (
        *((1, 64, 8, 8, 1), (1, 128, 8, 8, 1), (1, 256, 8, 8, 1), (2, 256, 8, 8, 1), (2, 320, 10, 10, 1)),
        *((4, 256, 8, 8, 1), (8, 256, 8, 8, 1), (6, 320, 10, 10, 1), (16, 256, 8, 8, 1), (16, 256, 16, 8, 1)),
        (16, 512, 16, 8, 1),
    ),
    4: (
        *((1, 64, 8, 8, 2), (1, 128, 8, 8, 2), (1, 256, 8, 8, 2), (2, 256, 8, 8, 2), (5, 160, 10, 10, 2)),
        *((5, 256, 10, 10, 2), (8, 256, 8, 8, 2), (8, 288, 14, 8, 2), (12, 320, 10, 10, 2), (16, 256, 16, 8, 4)),
        (16, 512, 16, 8, 4),
    ),
}


def loss_capped(words: int, itemsize: int, limits: Limits) -> tuple[Geometry, int, int] | None:
    """Cross-entropy as softcap.cu takes it, how many of a thread's words are held in registers at first, and how many a
    warp takes by one formula."""
    largest = limits.largest_cluster
    table: Iterable[tuple[int, int, int, int, int]] = _LOSS_CAPPED[itemsize]
    if 0 < largest < 16:
        table = (*table, *((largest, 512, slots, 8, 1) for slots in _SMALL_CLUSTERS))
    for cluster, threads, slots, held, chunk in table:
        if words > cluster * threads * slots or cluster > largest:
            continue
        fits = limits.shared_bytes // (slots * threads * 16 + RECORDS // 2)
        if fits:
            blocks = max(1, min(fits, (1024 if slots <= 10 else 864) // threads))
            return Geometry(threads, threads, slots, cluster, blocks=blocks), held, chunk
    return None

"""How sequences are dealt to the processes of a ring so that causal attention is the same work for each.

A sequence is cut into 2 n chunks for n processes, and process r gets chunks r and 2 n − 1 − r: one near the beginning,
where a query sees few keys, and one as near the end, where it sees many (zigzag).  Any length: chunks differ by one at
most.  Several sequences packed along one axis are dealt one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _arguments
from .._arguments import answers_synonyms, integer, normalise_axis
from .group import Group, gather, rank_and_size
from .shards import check_local


def chunk_length(length: int, chunk: int, size: int) -> int:
    """The length of chunk `chunk` of the 2 · size that a sequence is cut into."""
    return (chunk + 1) * length // (2 * size) - chunk * length // (2 * size)


def pair_lengths(length: int, rank: int, size: int) -> tuple[int, int]:
    """The lengths of the two chunks that a rank has of a sequence."""
    return chunk_length(length, rank, size), chunk_length(length, 2 * size - 1 - rank, size)


def local_lengths(lengths: Sequence[int], rank: int, size: int) -> list[int]:
    """How much of each packed sequence a rank of `size` has; ValueError for a length below 0 or a rank out of range."""
    rank, size = integer("rank", rank), integer("size", size)
    if size < 1:
        raise ValueError(f"size is {size}; wanted at least one process")
    if not 0 <= rank < size:
        raise ValueError(f"rank is {rank}; wanted 0 to {size - 1}, as size is {size}")
    return [sum(pair_lengths(length, rank, size)) for length in checked_lengths(lengths)]


def checked_lengths(given: Any) -> tuple[int, ...]:
    """lengths= as ints from 0 on."""
    wanted = "a sequence of ints from 0 on"
    try:
        each = tuple(given)
    except TypeError:
        raise TypeError(f"lengths is {given!r}; wanted {wanted}") from None
    return _arguments.lengths("lengths", given, each, wanted)


@answers_synonyms
def shard_sequence(x: Tensor, axis: int = -2, *, lengths: Sequence[int] | None = None, group: Group = None) -> Tensor:
    """This process's part of x, whose `axis` holds whole sequences, in the order `ring_attention` takes.

    `lengths` are those of sequences packed along the axis, from 0 on; not given: one sequence, of as many positions as
    every process can have an equal, even number of. A ValueError where it is not, where a length is negative, or their
    sum not the length of the axis.
    """
    check_local("x", x)
    axis = normalise_axis(axis, x.ndim)
    rank, size = rank_and_size(group)
    if lengths is None and x.shape[axis] % (2 * size):
        raise ValueError(
            f"x has {x.shape[axis]} positions, no multiple of {2 * size} for {size} processes: pass "
            f"lengths=[{x.shape[axis]}], here and to ring_attention"
        )
    places = _places(_lengths(lengths, x.shape[axis]), rank, size)
    return x.index_select(axis, torch.tensor(places, dtype=torch.int64, device=x.device))


@answers_synonyms
def gather_sequence(local: Tensor, axis: int = -2, *, lengths: Sequence[int], group: Group = None) -> Tensor:
    """The whole sequences, on every process, from what shard_sequence gave; `lengths` as there. No gradient."""
    check_local("local", local)
    axis = normalise_axis(axis, local.ndim)
    rank, size = rank_and_size(group)
    lengths = checked_lengths(lengths)
    moved = local.detach().movedim(axis, 0)
    own = _places(lengths, rank, size)
    if moved.shape[0] != len(own):
        raise ValueError(
            f"local has {moved.shape[0]} positions along axis {axis}; rank {rank} of {size} has {len(own)}"
        )
    longest = max(len(_places(lengths, r, size)) for r in range(size))
    padded = moved.new_zeros((longest, *moved.shape[1:]))
    padded[: moved.shape[0]] = moved
    whole = moved.new_empty((sum(lengths), *moved.shape[1:]))
    for r, part in enumerate(gather(padded, group)):
        places = _places(lengths, r, size)
        whole[torch.tensor(places, dtype=torch.int64, device=local.device)] = part[: len(places)]
    return whole.movedim(0, axis)


def _lengths(lengths: Sequence[int] | None, total: int) -> tuple[int, ...]:
    found = (total,) if lengths is None else checked_lengths(lengths)
    if sum(found) != total:
        raise ValueError(f"lengths sum to {sum(found)}; the axis has {total} positions")
    return found


def _places(lengths: Sequence[int], rank: int, size: int) -> list[int]:
    """The positions along the packed axis that a rank has, in its order."""
    places: list[int] = []
    start = 0
    for length in lengths:
        for chunk in (rank, 2 * size - 1 - rank):
            first = start + chunk * length // (2 * size)
            places += range(first, first + chunk_length(length, chunk, size))
        start += length
    return places

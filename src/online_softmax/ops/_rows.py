"""How the reference implementations walk over rows: pieces of a few rows, blocks of a row, one order of summation.

Rows lie along the last axis.  A row is always cut into the same blocks and summed in the same tree, so that its result
does not depend on the rows around it; and temporaries stay the size of one piece, whatever the size of the array.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from array_api_compat import is_writeable_array

from .._arrays import Array, device
from ..state import exp_against, row_maximum

BLOCK = 8192
_PIECE = 1 << 18


def blocks(length: int) -> Iterator[slice]:
    """Slices of at most BLOCK elements that cover a row of `length`."""
    return (slice(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK))


def pieces(rows: Array) -> Iterator[Any]:
    """Indices of groups of whole rows, small enough that a block of each makes a modest temporary."""
    if rows.ndim < 2:
        yield (...,)
        return
    each = max(1, _elements(rows.shape[1:-1]) * min(rows.shape[-1], BLOCK))
    step = max(1, _PIECE // each)
    for start in range(0, rows.shape[0], step):
        yield (slice(start, min(start + step, rows.shape[0])), ...)


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def row_sum(xp: Any, terms: Array) -> Array:
    """Sum over the last axis by halving: error grows with log n, and no other row can change a bit."""
    length = terms.shape[-1]
    if length == 0:
        return xp.zeros(terms.shape[:-1], dtype=terms.dtype, device=device(terms))
    while length > 1:
        half = length // 2
        paired = terms[..., :half] + terms[..., half : 2 * half]
        terms = paired if length % 2 == 0 else xp.concat([paired, terms[..., length - 1 :]], axis=-1)
        length = terms.shape[-1]
    return terms[..., 0]


def new_array(xp: Any, shape: tuple[int, ...], dtype: Any, like: Array) -> Array | None:
    """An uninitialised array on like's device, or None in a library whose arrays cannot be written to."""
    out = xp.empty(shape, dtype=dtype, device=device(like))
    return out if is_writeable_array(out) else None


def maximum_and_rest(xp: Any, rows: Array, compute: Any) -> tuple[Array, Array]:
    """The maximum of each row, and Σ exp(x − m) over all its elements but the first maximal one."""
    length = rows.shape[-1]
    m: Any = None
    first: Any = None
    for block in blocks(length):
        part = xp.astype(rows[..., block], compute)
        part = xp.where(xp.isnan(part), -xp.inf, part)
        block_m, block_first = xp.max(part, axis=-1), xp.argmax(part, axis=-1) + block.start
        if m is None:
            m, first = block_m, block_first
        else:
            rises = block_m > m
            m, first = xp.where(rises, block_m, m), xp.where(rises, block_first, first)
    if m is None:
        empty = row_maximum(xp, xp.astype(rows, compute))
        return empty, xp.zeros_like(empty)
    rest = xp.zeros_like(m)
    for block in blocks(length):
        e = exp_against(xp, xp.astype(rows[..., block], compute), m[..., None])
        index = xp.arange(block.start, block.stop, device=device(rows))
        # A NaN is never the first maximum, unless there is nothing else: then it must stay.
        dropped = (index == first[..., None]) & ~xp.isnan(e)
        rest = rest + row_sum(xp, xp.where(dropped, 0.0, e))
    return m, rest

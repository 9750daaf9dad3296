"""The online algorithm slowed down: one row, block by block, every state on the way recorded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ._arguments import integer
from .state import State

_DTYPES = ("float16", "float32", "float64")


class Block(NamedTuple):
    """One update of the running state."""

    start: int
    """Position in the row of the block's first element."""
    stop: int
    """One past the position of its last."""
    block_m: float
    """The block's own maximum."""
    block_s: float
    """The block's own sum of exp(x - block_m)."""
    m_before: float
    """The running maximum before the block."""
    s_before: float
    """The running normaliser before the block, kept against m_before."""
    m_after: float
    s_after: float
    rescaled: bool
    """Whether a sum already there had to be rescaled: the block is not the first, and holds a new maximum."""
    factor: float
    """What s_before was multiplied by: exp(m_before - m_after); 1 when the maximum stayed."""


class Trace(NamedTuple):
    """A whole row: its blocks, and what they come to."""

    dtype: str
    """The dtype the row was rounded to; float16 is computed in float32, as everywhere in the library."""
    length: int
    block: int
    blocks: tuple[Block, ...]
    updates: int
    """The number of blocks."""
    rescales: int
    """The number of blocks after the first whose maximum exceeds the running one."""
    maximum: float
    online: float
    """The normaliser, the sum of exp(x - maximum), as the blocks left it: the row was read once."""
    two_pass: float
    """The same normaliser from two passes: first the maximum, then the sum."""
    relative_difference: float
    """abs(online - two_pass) / two_pass; 0 when they are equal, infinite ones included."""
    logsumexp: float
    """maximum + log(online), in nats."""
    naive_sum: float
    """The sum of exp(x) with nothing subtracted, in the row's own dtype."""
    naive_is_finite: bool


def trace(x: ArrayLike, block: int | None = None, dtype: DTypeLike | None = None) -> Trace:
    """Run the online normaliser over a row and record every state.

    Parameters
    ----------
    x : array_like, shape (n,)
        The row, of any real dtype. It may hold infinities and NaN.
    block : int, optional
        The number of elements an update takes in, from 1 to n; 8 unless given, or n where that is less. The last block
        may be shorter.
    dtype : float16, float32 or float64, optional
        What the row is rounded to first. The row's own dtype by default; integers and lists become float64.

    Returns
    -------
    Trace
        One `Block` an update, and the totals: Python numbers throughout.

    Raises
    ------
    TypeError
        `x` holds something other than real numbers, `block` is no integer, or `dtype` is none of the three.
    ValueError
        `x` is empty or has more than one axis, or `block` does not lie in 1..n.

    Examples
    --------
    >>> t = trace([1.0, 3.0, 2.0, 5.0], block=2)
    >>> [(b.m_before, b.m_after, b.rescaled) for b in t.blocks]
    [(-inf, 3.0, False), (3.0, 5.0, True)]
    >>> t.updates, t.rescales, t.relative_difference < 1e-15
    (2, 1, True)

    Notes
    -----
    Milakov & Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867, section 3.
    """
    row = _row(x, dtype)
    block = min(8, row.size) if block is None else _block(block, row.size)
    state = State.empty((), row)
    blocks = []
    for start in range(0, row.size, block):
        piece = State.of(row[start : start + block])
        merged = state.merge(piece)
        blocks.append(_record(start, min(start + block, row.size), state, piece, merged))
        state = merged
    return _total(row, block, tuple(blocks), state)


def _record(start: int, stop: int, before: State, piece: State, after: State) -> Block:
    m_before, m_after = float(before.m), float(after.m)
    return Block(
        start=start,
        stop=stop,
        block_m=float(piece.m),
        block_s=float(piece.s),
        m_before=m_before,
        s_before=float(before.s),
        m_after=m_after,
        s_after=float(after.s),
        rescaled=start > 0 and m_after > m_before,
        factor=1.0 if m_after == m_before else float(np.exp(before.m - after.m)),
    )


def _total(row: np.ndarray, block: int, blocks: tuple[Block, ...], state: State) -> Trace:
    two_pass = float(State.of(row).s)
    online = float(state.s)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        naive_sum = float(np.sum(np.exp(row), dtype=row.dtype))
        logsumexp = float(state.logsumexp())
    return Trace(
        dtype=row.dtype.name,
        length=row.size,
        block=block,
        blocks=blocks,
        updates=len(blocks),
        rescales=sum(b.rescaled for b in blocks),
        maximum=float(state.m),
        online=online,
        two_pass=two_pass,
        relative_difference=0.0 if online == two_pass else abs(online - two_pass) / two_pass,
        logsumexp=logsumexp,
        naive_sum=naive_sum,
        naive_is_finite=bool(np.isfinite(naive_sum)),
    )


def _row(x: ArrayLike, dtype: DTypeLike | None) -> np.ndarray:
    row = np.asarray(x)
    if row.dtype.kind not in "fiub":
        raise TypeError(f"x has dtype {row.dtype}; wanted real numbers")
    if row.ndim != 1 or row.size == 0:
        raise ValueError(f"x has shape {row.shape}; wanted one row of at least one number")
    name = _dtype_name(dtype if dtype is not None else row.dtype if row.dtype.kind == "f" else np.float64)
    with np.errstate(over="ignore"):  # float16 ends at 65504: what lies beyond becomes inf, and the trace shows it
        return row.astype(name)


def _dtype_name(dtype: DTypeLike) -> str:
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if name not in _DTYPES:
        raise TypeError(f"dtype is {name}; wanted one of {', '.join(_DTYPES)}")
    return name


def _block(block: int, length: int) -> int:
    number = integer("block", block)
    if not 1 <= number <= length:
        raise ValueError(f"block is {number}; wanted 1 to the row's length {length}")
    return number

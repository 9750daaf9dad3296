"""Rows that `ignore_index` leaves out of the products, and whose values must spoil no gradient."""

from __future__ import annotations

import sys
from typing import Any

from ..._arrays import Array, device, is_integer, namespace
from ..._dispatch import device_type
from .problem import Problem


def without_ignored_rows(problem: Problem, aux: bool) -> tuple[Problem, Array | None]:
    """The problem of kept rows alone and their indices; None where all rows stay.

    Aux asks for every row.  On a GPU all stay too: how many are kept is known to the device only, and asking would
    stall it.
    """
    if not is_integer(problem.target.dtype):
        return problem._replace(may_ignore=False), None
    if aux or device_type(problem.input) != "cpu":
        return problem, None
    xp = namespace(problem.target)
    (index,) = xp.nonzero(problem.target != problem.options.ignore_index)
    if index.shape[0] == problem.target.shape[0]:
        return problem._replace(may_ignore=False), None
    kept = problem._replace(input=problem.input[index], target=problem.target[index], may_ignore=False)
    return kept, index


def without_ignored(problem: Problem, rows: slice, grad_lse: Array | None = None, room: Array | None = None) -> Array:
    """The input's rows for the weight's gradient: those without a gradient zero, for there 0 · NaN would be NaN.

    On a GPU they may take `room`, memory of the same shape.
    """
    x = problem.input[rows]
    if not problem.may_ignore:
        return x
    room = None if room is None or room.dtype != x.dtype else room
    if grad_lse is None and problem.module.__name__.endswith(".cuda"):
        from . import cuda_ignored

        if cuda_ignored.fits(x, room):
            return cuda_ignored.without_ignored(x, problem.target[rows], problem.options.ignore_index, room)
    out = spoiling(problem, rows, grad_lse)[:, None]
    if device_type(x) == "cuda" and x.is_contiguous() and x.shape[1] % 8 == 0 and x.data_ptr() % 8 == 0:
        # A mask that is broadcast costs torch a fixed time an element: several are taken as one.
        torch = sys.modules["torch"]
        words = x.view(torch.int64)
        if room is None:
            return torch.where(out, 0, words).view(x.dtype)
        torch.where(out, words.new_zeros(()), words, out=room.view(torch.int64))
        return room
    return namespace(x).where(out, 0.0, x)


def spoiling(problem: Problem, rows: slice, grad_lse: Array | None = None) -> Array:
    """Which rows are ignored and get nothing through lse either, so that what they hold must not matter."""
    if not problem.may_ignore:
        xp = namespace(problem.input)
        return xp.zeros(problem.target[rows].shape[:1], dtype=xp.bool, device=device(problem.input))
    ignored = problem.target[rows] == problem.options.ignore_index
    return ignored if grad_lse is None else ignored & (grad_lse[rows] == 0)


def spread(rows: Array | None, index: Array | None, count: int) -> Any:
    """Per-row results back among `count` rows, 0 for those left out."""
    if rows is None or index is None:
        return rows
    xp = namespace(rows)
    out = xp.zeros((count, *rows.shape[1:]), dtype=rows.dtype, device=device(rows))
    out[index] = rows
    return out

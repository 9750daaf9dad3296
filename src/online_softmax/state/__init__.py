"""The state (m, s) of a row, or of any part of one: its maximum m, and s = sum of exp(x - m).

    empty                        = (-inf, 0)
    merge((m1, s1), (m2, s2))    = (m, s1 exp(m1 - m) + s2 exp(m2 - m)),   m = max(m1, m2)

`merge` is associative and commutative with identity `empty`: the states of the blocks of a stream, the shards of a
vocabulary and the devices of a cluster combine in any order and any tree.  logsumexp = m + log s.  A state may carry
v = sum of exp(x - m) values too: that is attention.

A NaN lives in s (the maximum ignores it) and outlives +inf; with a +inf in the row, s counts the infinite elements.
Source: Milakov & Gimelshein 2018 (arXiv:1805.02867); Dao et al. 2022, FlashAttention, section 3.1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .._arguments import answers_synonyms, lengths, normalise_axis, same_library
from .._arrays import (
    Array,
    as_array,
    as_floating,
    compiling,
    compute_dtype,
    describe,
    detached,
    device,
    dtype_name,
    floating_array,
    is_tensor,
    namespace,
)

__all__ = ["State", "merge"]

P = ParamSpec("P")
R = TypeVar("R")


def _quiet(function: Callable[P, R]) -> Callable[P, R]:
    """inf - inf and exp of large negative numbers are expected here and selected away: NumPy need not warn of them."""

    @functools.wraps(function)
    def quiet(*args: P.args, **kwargs: P.kwargs) -> R:
        if compiling():  # which numpy.errstate would stop
            return function(*args, **kwargs)
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return quiet


@dataclass(frozen=True, eq=False)
class State:
    """The running maximum and normaliser of rows seen so far; immutable.

    Attributes
    ----------
    m : array, shape (...)
        Maximum of each row; −inf where nothing (or only −inf) was seen. float32, or float64 for float64 data.
        A constant to autograd: s and v carry the gradient of whatever is made of the state.
    s : array, shape (...)
        Σ exp(x − m) of each row; 0 where nothing was seen, NaN once a NaN was seen.
    v : array, shape (..., d), or None
        Σ exp(x − m) · values, when values were given.

    Examples
    --------
    >>> import numpy as np, online_softmax as osm
    >>> left, right = osm.State.of(np.array([1.0, 2.0])), osm.State.of(np.array([3.0]))
    >>> round(float(osm.merge(left, right).logsumexp()), 6)
    3.407606
    """

    m: Array
    s: Array
    v: Array | None = None

    @classmethod
    @answers_synonyms
    def of(cls, x: Array, axis: int = -1, values: Array | None = None) -> State:
        """The state of x along `axis`.

        Parameters
        ----------
        x : array
            Real numbers, any shape with at least one axis. fp16, bf16 and fp32 are summed in fp32, fp64 in fp64.
        axis : int
            The axis that is summarised and disappears.
        values : array, shape of x with `axis` removed, then (n, d), optional
            For each of the n elements along `axis` a vector of d numbers: x of shape (..., n) takes (..., n, d).

        Raises
        ------
        ValueError
            If `axis` is out of range or the shape of `values` does not fit.
        TypeError
            If x is complex or not numeric, `axis` is no int, or `values` is of another library or device.
        """
        return _summarised("x", x, axis, values)

    @classmethod
    def empty(cls, shape: tuple[int, ...] | int, like: Array, values: int | None = None) -> State:
        """The state of nothing, the identity of merge: m = −inf, s = 0 of the given shape.

        `like` gives the array library, the device and the precision, which is that of `State.of(like)`; `values` the
        length d of the vectors a state with values carries. Raises TypeError or ValueError for a shape or length that
        is no int from 0 on, and TypeError for a `like` that is no array of real numbers.
        """
        if not hasattr(like, "dtype"):
            raise TypeError(f"like is a {type(like).__name__}; wanted an array or a tensor")
        like = as_array(like, "like")
        xp = namespace(like)
        like = as_floating(xp.empty((0,), dtype=like.dtype, device=device(like)), "like")  # of a file, nothing is read
        each = shape if isinstance(shape, tuple | list) else (shape,)
        shape = lengths("shape", shape, each, "an int from 0 on, or a tuple of them")
        how = {"dtype": compute_dtype(xp, like.dtype), "device": device(like)}
        v = None
        if values is not None:
            v = xp.zeros((*shape, *lengths("values", values, (values,), "an int from 0 on, or None")), **how)
        return cls(xp.full(shape, -xp.inf, **how), xp.zeros(shape, **how), v)

    @answers_synonyms
    def update(self, block: Array, axis: int = -1, values: Array | None = None) -> State:
        """The state of what was seen so far and a further block of the same rows along `axis`.

        Raises what `State.of` and `merge` raise.
        """
        part = _summarised("block", block, axis, values)
        same_library("block", part.m, self.m, "the state", block)
        if tuple(part.m.shape) != tuple(self.m.shape):
            raise ValueError(
                f"block has rows of shape {tuple(part.m.shape)} beside axis {axis}; wanted the state's "
                f"{tuple(self.m.shape)}"
            )
        return merge(self, part)

    def merge(self, other: State) -> State:
        """The state of both parts together."""
        return merge(self, other)

    @_quiet
    def logsumexp(self) -> Array:
        """log Σ exp(x) = m + log s of each row, natural log, shape of m; −inf for an empty row, +inf, NaN kept."""
        xp = namespace(self.m)
        # An empty row has m = -inf and s = 0: its log-sum-exp is m itself, and has no gradient.
        return xp.where(self.s == 0, detached(self.m), self.m + xp.log(xp.where(self.s == 0, 1.0, self.s)))

    @answers_synonyms
    @_quiet
    def softmax(self, x: Array, axis: int = -1) -> Array:
        """exp(x − m) / s: the probabilities of a block x of the rows this state has seen.

        Same shape as x, in the state's dtype; NaN for rows that hold NaN or +inf or nothing but −inf. Raises TypeError
        or ValueError if x is of other rows or another library.
        """
        x = same_library("x", floating_array(x, "x"), self.m, "the state", x)
        axis = normalise_axis(axis, x.ndim)
        if (*x.shape[:axis], *x.shape[axis + 1 :]) != tuple(self.m.shape):
            raise ValueError(
                f"x has {describe(x)}; wanted the state's rows {tuple(self.m.shape)} and axis {axis} of any length"
            )
        xp = namespace(x, self.m)
        m, s = xp.expand_dims(self.m, axis=axis), xp.expand_dims(self.s, axis=axis)
        infinite = xp.isinf(m)
        e = _exponential(exp_against, xp, xp.astype(x, m.dtype, copy=False), xp.where(infinite, 0.0, m))
        return e / xp.where(infinite, xp.nan, s)

    @_quiet
    def output(self) -> Array:
        """v / s: the average of the values, weighted by softmax — the output of attention. 0 for an empty row."""
        if self.v is None:
            raise ValueError("this state carries no values: give them to State.of(x, axis, values)")
        xp = namespace(self.v)
        return self.v / xp.where(self.s == 0, 1.0, self.s)[..., None]


@_quiet
def merge(*states: State) -> State:
    """The state of all parts together, in any number and order.

    Parameters
    ----------
    *states : State
        At least one; all of one array library, shape and dtype; all with values or none.

    Returns
    -------
    State
        m the largest maximum, s and v rescaled to it and added in the order given.

    Raises
    ------
    ValueError
        If no state is given, or shapes or dtypes differ, of the values too, or some carry values and some do not.
    TypeError
        If something is no state, or the states are of different array libraries.
    """
    if not states:
        raise ValueError("merge() needs at least one state")
    for state in states:
        if not isinstance(state, State):
            raise TypeError(f"merge() takes states; got a {type(state).__name__}: make one with State.of(x)")
    if len(states) == 1:
        return states[0]
    if len({namespace(state.m) for state in states}) > 1:
        raise TypeError(f"states are of different libraries: {', '.join(type(state.m).__name__ for state in states)}")
    if len({tuple(state.m.shape) for state in states}) > 1:
        shapes = ", ".join(str(tuple(state.m.shape)) for state in states)
        raise ValueError(f"states are of different rows: shapes {shapes}; wanted one shape")
    if len({dtype_name(state.m.dtype) for state in states}) > 1:
        raise ValueError(f"states differ in dtype: {', '.join(dtype_name(state.m.dtype) for state in states)}")
    if len({state.v is None for state in states}) > 1:
        raise ValueError("some states carry values and some do not")
    if len({state.v is None or (tuple(state.v.shape), dtype_name(state.v.dtype)) for state in states}) > 1:
        came = "; ".join(describe(state.v) for state in states)
        raise ValueError(f"states differ in their values: {came}; wanted one shape and dtype")
    xp = namespace(*(state.m for state in states))
    m = functools.reduce(xp.maximum, (detached(state.m) for state in states))
    scales = [_exponential(rescale_factor, xp, state.m, m) for state in states]
    s = functools.reduce(xp.add, (state.s * scale for state, scale in zip(states, scales, strict=True)))
    if states[0].v is None:
        return State(m, s)
    # A part that weighs exactly nothing takes no part, even if its v holds NaN or inf; a NaN in s weighs NaN.
    parts = [
        xp.where(((scale == 0) & ~xp.isnan(state.s))[..., None], 0.0, state.v) * scale[..., None]
        for state, scale in zip(states, scales, strict=True)
    ]
    return State(m, s, functools.reduce(xp.add, parts))


@_quiet
def _summarised(name: str, given: Any, axis: int, values: Any) -> State:
    x = floating_array(given, name)
    if x.ndim == 0:
        raise ValueError(f"{name} has no axis to summarise: shape ()")
    axis = normalise_axis(axis, x.ndim)
    xp = namespace(x)
    rows = xp.moveaxis(xp.astype(x, compute_dtype(xp, x.dtype), copy=False), axis, -1)
    m = row_maximum(xp, detached(rows))
    e = _exponential(exp_against, xp, rows, m[..., None])
    if values is None:
        return State(m, xp.sum(e, axis=-1, dtype=e.dtype))
    values = same_library("values", floating_array(values, "values"), x, name, values)
    if tuple(values.shape[:-1]) != tuple(rows.shape):
        raise ValueError(f"values has {describe(values)}; wanted {(*rows.shape, 'd')} for {name} of {describe(x)}")
    values = xp.astype(values, e.dtype, copy=False)
    # A class of weight exactly 0 takes no part, even where its values are not finite.
    weighted = e[..., None] * xp.where((e == 0)[..., None], 0.0, values)
    return State(m, xp.sum(e, axis=-1, dtype=e.dtype), xp.sum(weighted, axis=-2, dtype=e.dtype))


def _exponential(rule: Callable[..., Array], xp: Any, x: Array, m: Array) -> Array:
    """rule(xp, x, m), which is exp(x − m); to autograd too where x and m are one infinity, and x − m no number."""
    if not is_tensor(x) or not (x.requires_grad or m.requires_grad):
        return rule(xp, x, m)
    from .torch_op import its_own_slope

    return its_own_slope(rule, x, m)


def row_maximum(xp: Any, rows: Array) -> Array:
    """The largest element of each row (last axis), ignoring NaN; −inf for a row of nothing else."""
    if rows.shape[-1] == 0:
        return xp.full(rows.shape[:-1], -xp.inf, dtype=rows.dtype, device=device(rows))
    return xp.max(xp.where(xp.isnan(rows), -xp.inf, rows), axis=-1)


def exp_against(xp: Any, x: Array, m: Array) -> Array:
    """exp(x − m) for m at least x: 1 where they are equal (+inf included), exactly 0 where x is −inf or far below."""
    e = xp.exp(x - m)
    e = xp.where(e < xp.finfo(e.dtype).smallest_normal, 0.0, e)
    return xp.where(x == -xp.inf, 0.0, xp.where(x == m, 1.0, e))


def rescale_factor(xp: Any, from_m: Array, to_m: Array) -> Array:
    """exp(from_m − to_m), which is 1 where both are the same infinity."""
    return xp.where(from_m == to_m, 1.0, xp.exp(from_m - to_m))

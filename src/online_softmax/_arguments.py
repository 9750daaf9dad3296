"""Checks of arguments that several operations share: axes, out=, where=.  Nothing is written before they pass."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ._arrays import Array, describe, dtype_name, is_tensor, namespace

P = ParamSpec("P")
R = TypeVar("R")


def explains_dim(function: Callable[P, R]) -> Callable[P, R]:
    """Answer a call with torch's `dim=` or `keepdim=` by naming the argument that is meant."""

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if "dim" in kwargs or "keepdim" in kwargs:
            torchs, ours = ("dim", "axis") if "dim" in kwargs else ("keepdim", "keepdims")
            where = f"online_softmax.nn.functional.{function.__name__} takes torch's own arguments"
            raise TypeError(f"{function.__name__}() has no argument {torchs!r}: use {ours}= ({where})")
        return function(*args, **kwargs)

    return checked


def normalise_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """axis=, an int, a tuple of ints or None for all, as a tuple of distinct numbers from 0; a 0-d array has axis 0."""
    if type(axis) is int and -ndim <= axis < ndim:
        return (axis % ndim,)
    room = max(ndim, 1)
    if axis is None:
        return tuple(range(room))
    axes = []
    for one in axis if isinstance(axis, tuple | list) else (axis,):
        try:
            number = operator.index(one)
        except TypeError:
            raise TypeError(f"axis is {axis!r}; wanted an int, a tuple of ints or None") from None
        if isinstance(one, bool) or not -room <= number < room:
            raise ValueError(f"axis is {axis!r}, which is out of range for an array of {ndim} dimension(s)")
        axes.append(number % room)
    if len(set(axes)) != len(axes):
        raise ValueError(f"axis is {axis!r}, which names an axis twice")
    return tuple(axes)


def merge_axes(xp: Any, x: Array, axes: tuple[int, ...]) -> tuple[Array, Callable[[Array], Array]]:
    """x with `axes` merged into one last axis, and the function that brings a result of that shape back."""
    if x.ndim == 0:
        return xp.reshape(x, (1,)), lambda y: xp.reshape(y, ())
    kept = [i for i in range(x.ndim) if i not in axes]
    order = (*kept, *axes)
    inverse = tuple(order.index(i) for i in range(x.ndim))
    moved = xp.permute_dims(x, order)
    length = 1
    for i in axes:
        length *= x.shape[i]
    rows = xp.reshape(moved, (*(x.shape[i] for i in kept), length))
    return rows, lambda y: xp.permute_dims(xp.reshape(y, moved.shape), inverse)


def check_where(where: Any, x: Array) -> Array:
    """where= as a boolean array of x's library that broadcasts to x without enlarging it."""
    xp = namespace(x)
    if not is_tensor(where) and not hasattr(where, "__array_namespace__") and is_tensor(x):
        where = xp.asarray(where, device=x.device)
    elif not hasattr(where, "dtype"):
        where = xp.asarray(where)
    if dtype_name(where.dtype) != "bool":
        raise TypeError(f"where has {describe(where)}; wanted dtype bool")
    same_library("where", where, x)
    try:
        fits = np.broadcast_shapes(tuple(where.shape), tuple(x.shape)) == tuple(x.shape)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"where has {describe(where)}, which does not broadcast to x of shape {tuple(x.shape)}")
    return where


def same_library(name: str, array: Array, x: Array) -> None:
    """Refuse an array of another library or device than x."""
    if is_tensor(array) != is_tensor(x) or (is_tensor(x) and array.device != x.device):
        raise TypeError(
            f"{name} has {describe(array)} ({type(array).__name__}), "
            f"x has {describe(x)} ({type(x).__name__}): wanted one library and one device"
        )


def check_out(out: Any, x: Array, dtype: Any) -> None:
    """Refuse an out= that cannot take the result: wrong kind, shape or dtype, read-only, or overlapping in part."""
    if not hasattr(out, "dtype") or not hasattr(out, "shape"):
        raise TypeError(f"out is a {type(out).__name__}; wanted an array of shape {tuple(x.shape)}")
    same_library("out", out, x)
    if tuple(out.shape) != tuple(x.shape) or out.dtype != dtype:
        raise ValueError(f"out has {describe(out)}; wanted shape {tuple(x.shape)}, dtype {dtype_name(dtype)}")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ValueError("out is read-only")
    strides = _byte_strides(out)
    if strides is None:
        return
    if shares_memory_with_itself(out.shape, strides, out.itemsize):
        raise ValueError(f"out has {describe(out)} and elements that share memory (strides {strides} bytes)")
    if _overlaps(x, out) and not (_start(x) == _start(out) and _byte_strides(x) == strides and x.dtype == out.dtype):
        raise ValueError("out overlaps x in memory without being x itself")


def shares_memory_with_itself(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether two elements lie at one address; from the smallest step up, each must pass all that came before."""
    if 0 in shape:
        return False
    reach = itemsize
    for step, length in sorted((abs(step), length) for step, length in zip(strides, shape, strict=True) if length > 1):
        if step < reach:
            return True
        reach += step * (length - 1)
    return False


def _start(x: Array) -> int:
    return int(x.data_ptr() if is_tensor(x) else x.__array_interface__["data"][0])


def _byte_strides(x: Array) -> tuple[int, ...] | None:
    if isinstance(x, np.ndarray):
        return x.strides
    if is_tensor(x):
        return tuple(step * x.element_size() for step in x.stride())
    return None


def _overlaps(x: Array, y: Array) -> bool:
    if isinstance(x, np.ndarray):
        return bool(np.may_share_memory(x, y))
    (x_low, x_high), (y_low, y_high) = _extent(x), _extent(y)
    return x_low < y_high and y_low < x_high


def _extent(x: Array) -> tuple[int, int]:
    """First byte and one past the last byte a tensor's elements lie in (torch strides are never negative)."""
    if x.numel() == 0:
        return 0, 0
    last = sum((length - 1) * step for length, step in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()

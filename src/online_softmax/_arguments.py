"""Checks of arguments that several functions share: names, flags, numbers, axes, where=."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ._arrays import (
    Array,
    as_array,
    compiling,
    describe,
    device,
    dtype_name,
    floating_array,
    is_tensor,
    namespace,
)

P = ParamSpec("P")
R = TypeVar("R")

# What this library, torch, SciPy, flash-attention, Liger and transformers call the same argument.
_SYNONYMS = (
    *(("axis", "dim"), ("keepdims", "keepdim"), ("x", "input", "a"), ("target", "labels")),
    *(
        ("softcap", "softcapping", "logit_softcapping"),
        ("z_loss", "lse_square_scale"),
        ("num_items", "num_items_in_batch"),
    ),
    *(("q", "query"), ("k", "key"), ("v", "value"), ("mask", "attn_mask"), ("causal", "is_causal")),
    ("scale", "softmax_scale", "sm_scale"),
)
# Python makes a number of each: a tuple, as a union would be built anew in every call.
_NO_NUMBERS = (str, bool, np.bool_)
# From one to the other numbers are normal, and so are their reciprocals: of fp32 and of fp64.
_NARROW, _WIDE = (2.0**-126, 2.0**126), (2.0**-1022, 2.0**1022)
_LEAST, _MOST = _NARROW


def answers_synonyms(function: Callable[P, R]) -> Callable[P, R]:
    """Answer an argument under another library's name with the name that this function takes."""
    own = inspect.signature(function).parameters
    meant = {other: name for names in _SYNONYMS for name in names if name in own for other in names if other not in own}

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name in meant:
                raise TypeError(f"{function.__qualname__}() takes {meant[name]}=, not {name}=")
        return function(*args, **kwargs)

    return checked


def flag(name: str, value: Any) -> bool:
    """A boolean argument; whatever else Python could take for true or false is refused."""
    if value is True or value is False:
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    raise TypeError(f"{name} is {value!r}; wanted True or False")


def integer(name: str, value: Any, wanted: str = "an int") -> int:
    """value as an int that 64 bits hold; bools and floats are refused."""
    number = value if type(value) is int else _index(value)
    if number is None:
        raise TypeError(f"{name} is {value!r}; wanted {wanted}")
    if not -(2**63) <= number < 2**63:
        came = number if number.bit_length() <= 256 else f"an int of {number.bit_length()} bits"
        raise ValueError(f"{name} is {came}; wanted {wanted}, of at most 64 bits")
    return number


def _index(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def lengths(name: str, given: Any, each: Sequence[Any], wanted: str) -> tuple[int, ...]:
    """The lengths that `given` holds, as ints from 0 on, of 64 bits."""
    numbers = tuple(map(_index, each))
    if None in numbers:
        raise TypeError(f"{name} is {given!r}; wanted {wanted}")
    found = tuple(number for number in numbers if number is not None and 0 <= number < 2**63)
    if len(found) < len(numbers):
        raise ValueError(f"{name} is {given!r}; wanted {wanted}")
    return found


def number_of(name: str, value: Any, wanted: str = "a plain number", beside: Any = None) -> float:
    """value as a finite float; the error names the argument.

    Beside an array it must be 0 or a normal number, as its reciprocal, of the dtype that the array is computed in.
    """
    if type(value) is float and (_LEAST <= value <= _MOST or value == 0.0):
        return value
    if isinstance(value, _NO_NUMBERS) or is_tensor(value):
        raise TypeError(f"{name} is {value!r}; wanted {wanted}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}; wanted {wanted}") from None
    except OverflowError:
        raise ValueError(f"{name} is an int too large for a float; wanted a finite number") from None
    if not -math.inf < number < math.inf:  # a comparison, which torch.compile can guard on
        raise ValueError(f"{name} is {number}; wanted a finite number")
    if beside is not None and number != 0.0 and not _LEAST <= abs(number) <= _MOST:
        wide = dtype_name(floating_array(beside, "input").dtype) == "float64"
        least, most = _WIDE if wide else _NARROW
        if not least <= abs(number) <= most:
            computed = "float64" if wide else "float32"
            raise ValueError(
                f"{name} is {number}; wanted a size from {least:.2g} to {most:.2g}, as {computed} is computed"
            )
    return number


def normalise_axes(axis: Any, ndim: int, name: str = "axis") -> tuple[int, ...]:
    """axis=, an int, a tuple of ints or None for all, as a tuple of distinct numbers from 0; a 0-d array has axis 0."""
    if type(axis) is int and -ndim <= axis < ndim:
        return (axis % ndim,)
    room = max(ndim, 1)
    if axis is None:
        return tuple(range(room))
    axes = []
    for one in axis if isinstance(axis, tuple | list) else (axis,):
        number = _index(one)
        if number is None:
            raise TypeError(f"{name} is {axis!r}; wanted an int, a tuple of ints or None")
        axes.append(_in_range(name, axis, number, ndim))
    if len(set(axes)) != len(axes):
        raise ValueError(f"{name} is {axis!r}, which names an axis twice")
    return tuple(axes)


def normalise_axis(axis: Any, ndim: int, name: str = "axis") -> int:
    """One axis, as a number from 0."""
    return _in_range(name, axis, integer(name, axis), ndim)


def _in_range(name: str, given: Any, number: int, ndim: int) -> int:
    room = max(ndim, 1)
    if not -room <= number < room:
        raise ValueError(f"{name} is {given!r}, which is out of range for an array of {ndim} dimension(s)")
    return number % room


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
    mask = as_array_like("where", where, x)
    if dtype_name(mask.dtype) != "bool":
        raise TypeError(f"where has {describe(mask)}; wanted dtype bool")
    try:
        fits = np.broadcast_shapes(tuple(mask.shape), tuple(x.shape)) == tuple(x.shape)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"where has {describe(mask)}, which does not broadcast to x of shape {tuple(x.shape)}")
    return mask


def as_array_like(name: str, given: Any, x: Array) -> Array:
    """A list or number as an array of x's library, on its device; an array of another library or device is refused."""
    if compiling() and isinstance(given, (bool, int, float, list, tuple)):
        return _traced(given, x)
    array = as_array(given, name)
    if not hasattr(given, "dtype"):
        xp = namespace(x)
        return array if isinstance(x, np.ndarray) else xp.asarray(array, device=device(x))
    return same_library(name, array, x)


def _traced(given: Any, x: Array) -> Array:
    """A list or number beside a tensor where torch.compile follows, which knows no NumPy arrays with dtypes."""
    torch = sys.modules["torch"]
    array = torch.tensor(given, device=x.device)
    return torch.tensor(given, dtype=torch.float64, device=x.device) if array.is_floating_point() else array


def same_library(name: str, array: Array, x: Array, other: str = "x", given: Any = None) -> Array:
    """array itself, refused unless it is of x's library and on its device; `given` is what it was made of."""
    if is_tensor(array) == is_tensor(x) and device(array) == device(x):
        return array
    came = f"a {type(array).__name__} of {describe(array)}"
    if given is not None and not hasattr(given, "dtype"):
        came = f"a {type(given).__name__}"
    raise TypeError(
        f"{name} is {came}, {other} a {type(x).__name__} of {describe(x)}: wanted one library and one device"
    )

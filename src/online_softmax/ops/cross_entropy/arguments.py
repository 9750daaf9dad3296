"""The arguments of cross-entropy, checked and brought to the one form that implementations take.

That form: logits (M, C) with the classes last, M class indices or (M, C) probabilities, weights (C,) in the dtype of
the computation.  Nothing is computed or written before every argument has passed.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..._arrays import (
    Array,
    as_array,
    compute_dtype,
    describe,
    device,
    dtype_name,
    floating_array,
    is_floating,
    is_integer,
    is_tensor,
    namespace,
)
from .options import Options


class Prepared(NamedTuple):
    """Checked arguments: what implementations take, and how a per-row result gets its shape back."""

    logits: Array
    target: Array
    weight: Array | None
    num_items: Any
    options: Options
    shape: tuple[int, ...]
    to_rows: Callable[[Array], Array]
    to_input: Callable[[Array], Array]


def make_options(
    ignore_index: int, reduction: str, label_smoothing: float, scale: float, softcap: float | None, z_loss: float
) -> Options:
    """The options that are plain values; a ValueError or TypeError names the one that cannot be."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}; wanted 'none', 'mean' or 'sum'")
    try:
        ignore_index = operator.index(ignore_index)
    except TypeError:
        raise TypeError(f"ignore_index is {ignore_index!r}; wanted an int") from None
    label_smoothing = number_of("label_smoothing", label_smoothing)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label_smoothing is {label_smoothing}; wanted a number from 0 to 1")
    scale = number_of("scale", scale)
    if scale == 0.0:
        raise ValueError("scale is 0; wanted any other finite number")
    if softcap is not None:
        softcap = number_of("softcap", softcap)
        if softcap <= 0.0:
            raise ValueError(f"softcap is {softcap}; wanted a positive number or None")
    return Options(ignore_index, reduction, label_smoothing, scale, softcap, number_of("z_loss", z_loss))


def number_of(name: str, value: Any) -> float:
    """value as a finite float; the error names the argument."""
    if isinstance(value, str) or is_tensor(value):
        raise TypeError(f"{name} is {value!r}; wanted a plain number")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}; wanted a number") from None
    if not -math.inf < number < math.inf:  # a comparison, which torch.compile can guard on
        raise ValueError(f"{name} is {number}; wanted a finite number")
    return number


def prepare(input: Array, target: Any, weight: Any, num_items: Any, options: Options) -> Prepared:
    """Logits, targets and weights in the form of this module, whatever form torch's cross_entropy accepts."""
    input = floating_array(input, "input")
    xp = namespace(input)
    if input.ndim == 0:
        raise ValueError(f"input has {describe(input)}; wanted (C,), (N, C) or (N, C, d1, …)")
    target = beside("target", as_array(target, "target"), input)
    axis = 0 if input.ndim == 1 else 1
    classes = input.shape[axis]
    rows = tuple(length for i, length in enumerate(input.shape) if i != axis)
    probabilities = is_floating(target.dtype)
    if not probabilities and not is_integer(target.dtype):
        raise TypeError(f"target has {describe(target)}; wanted class indices (integers) or probabilities (floating)")
    wanted = tuple(input.shape) if probabilities else rows
    if tuple(target.shape) != wanted:
        what = "probabilities" if probabilities else "class indices"
        if probabilities and tuple(target.shape) == rows:
            what = "class indices must be integers; probabilities"
        elif tuple(target.shape) == tuple(input.shape[:-1]):
            what = "classes lie along axis 1 (move them there, or flatten the rows); class indices"
        raise ValueError(f"target has {describe(target)}; {what} for input of {tuple(input.shape)} have shape {wanted}")
    if probabilities and options.ignore_index >= 0:
        raise ValueError(f"ignore_index is {options.ignore_index}; it has no meaning for probability targets")
    if not probabilities and dtype_name(target.dtype) not in ("int32", "int64"):
        target = xp.astype(target, xp.int64)
    last_shape = (*rows, classes)
    return Prepared(
        _classes_last(xp, input, axis, classes),
        _classes_last(xp, target, axis, classes) if probabilities else xp.reshape(target, (-1,)),
        class_weight(weight, input, classes),
        divisor_given(num_items, input, options),
        options,
        rows,
        lambda a: xp.reshape(a, rows),
        lambda a: xp.moveaxis(xp.reshape(a, last_shape), -1, axis),
    )


def _classes_last(xp: Any, x: Array, axis: int, classes: int) -> Array:
    if x.ndim == 2:
        return x
    moved = xp.moveaxis(x, axis, -1)
    count = 1
    for length in moved.shape[:-1]:
        count *= length
    return xp.reshape(moved, (count, classes))


def beside(name: str, array: Array, input: Array) -> Array:
    """array itself, refused unless it is of input's library and on its device."""
    if is_tensor(array) != is_tensor(input) or device(array) != device(input):
        raise TypeError(
            f"{name} is a {type(array).__name__} of {describe(array)}, "
            f"input a {type(input).__name__} of {describe(input)}: wanted one library and one device"
        )
    return array


def class_weight(weight: Any, input: Array, classes: int) -> Array | None:
    """One factor a class, contiguous, in the dtype of the computation."""
    if weight is None:
        return None
    weight = beside("weight", floating_array(weight, "weight"), input)
    if tuple(weight.shape) != (classes,):
        raise ValueError(f"weight has {describe(weight)}; wanted shape ({classes},), one number a class")
    xp = namespace(input)
    weight = xp.astype(weight, compute_dtype(xp, input.dtype), copy=False)
    if is_tensor(weight):
        return weight.contiguous()
    return np.ascontiguousarray(weight) if isinstance(weight, np.ndarray) else weight


def divisor_given(num_items: Any, input: Array, options: Options) -> Any:
    """num_items as a positive number or a 0-d tensor beside input."""
    if num_items is None:
        return None
    if options.reduction != "mean":
        raise ValueError(f"num_items replaces what 'mean' divides by; reduction is {options.reduction!r}")
    if hasattr(num_items, "shape"):
        if tuple(num_items.shape) != ():
            raise ValueError(f"num_items has shape {tuple(num_items.shape)}; wanted a number or a 0-d array")
        if is_tensor(num_items) and is_tensor(input):
            return beside("num_items", num_items, input)
    number = number_of("num_items", num_items.item() if hasattr(num_items, "item") else num_items)
    if number <= 0:
        raise ValueError(f"num_items is {num_items}; wanted a positive number")
    return number


def check_range(target: Array, classes: int, ignore_index: int, shape: tuple[int, ...]) -> None:
    """IndexError, with row and value, if a class index is neither in [0, classes) nor ignore_index.

    `target` is flat; `shape` is the one the caller knows it by.
    """
    if not is_integer(target.dtype):
        return
    xp = namespace(target)
    bad = ((target < 0) | (target >= classes)) & (target != ignore_index)
    if xp.any(bad):
        row = int(xp.argmax(xp.astype(bad, xp.int8)))
        place = ", ".join(str(int(i)) for i in np.unravel_index(row, shape)) if shape else "()"
        wanted = f"a class from 0 to {classes - 1}" if classes else "no class at all (input has none)"
        raise IndexError(f"target[{place}] is {int(target[row])}; wanted {wanted}, or ignore_index ({ignore_index})")

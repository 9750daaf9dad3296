"""The arguments of cross-entropy, checked and brought to the one form that implementations take.

That form: logits (M, C) with the classes last, M class indices or (M, C) probabilities, weights (C,) in the dtype of
the computation.  Nothing is computed or written before every argument has passed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..._arguments import integer, number_of, same_library
from ..._arrays import (
    Array,
    as_array,
    compute_dtype,
    describe,
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


_USUAL = Options()
_DEFAULTS = tuple(_USUAL)


def make_options(
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    scale: float,
    softcap: float | None,
    z_loss: float,
    input: Any = None,
) -> Options:
    """The options that are plain values, beside the logits or input; an error names the one that cannot be."""
    plain = (
        softcap is None and type(ignore_index) is int and type(label_smoothing) is type(scale) is type(z_loss) is float
    )
    if plain and (ignore_index, reduction, label_smoothing, scale, None, z_loss) == _DEFAULTS:  # which need no check
        return _USUAL
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}; wanted 'none', 'mean' or 'sum'")
    ignore_index = integer("ignore_index", ignore_index)
    label_smoothing = number_of("label_smoothing", label_smoothing)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label_smoothing is {label_smoothing}; wanted a number from 0 to 1")
    scale = number_of("scale", scale, beside=input)
    if scale == 0.0:
        raise ValueError("scale is 0; wanted any other finite number")
    if softcap is not None:
        softcap = number_of("softcap", softcap, beside=input)
        if softcap <= 0.0:
            raise ValueError(f"softcap is {softcap}; wanted a positive number or None")
    z_loss = number_of("z_loss", z_loss, beside=input)
    return Options(ignore_index, reduction, label_smoothing, scale, softcap, z_loss)


def _itself(a: Array) -> Array:
    return a


def as_they_are(logits: Array, target: Array, options: Options) -> Prepared:
    """(M, C) logits and M class indices that are all an implementation asks for: what `prepare` makes of them."""
    return Prepared(logits, target, None, None, options, tuple(logits.shape[:1]), _itself, _itself)


def prepare(input: Array, target: Any, weight: Any, num_items: Any, options: Options) -> Prepared:
    """Logits, targets and weights in the form of this module, whatever form torch's cross_entropy accepts."""
    input = floating_array(input, "input")
    target = fitting_target(target, input)
    xp = namespace(input)
    axis = 0 if input.ndim == 1 else 1
    classes, rows = input.shape[axis], _rows(input)
    probabilities = is_floating(target.dtype)
    if probabilities and options.ignore_index >= 0:
        raise ValueError(f"ignore_index is {options.ignore_index}; it has no meaning for probability targets")
    if not probabilities:
        target = class_indices(target, options.ignore_index)
    last_shape = (*rows, classes)
    return Prepared(
        _classes_last(xp, input, axis, classes),
        _classes_last(xp, target, axis, classes)
        if probabilities
        else target
        if target.ndim == 1
        else xp.reshape(target, (-1,)),
        class_weight(weight, input, classes),
        divisor_given(num_items, input, options),
        options,
        rows,
        lambda a: xp.reshape(a, rows),
        lambda a: xp.moveaxis(xp.reshape(a, last_shape), -1, axis),
    )


def fitting_target(target: Any, input: Array) -> Array:
    """target as an array beside input: class indices of its rows, or probabilities of its shape."""
    if input.ndim == 0:
        raise ValueError(f"input has {describe(input)}; wanted (C,), (N, C) or (N, C, d1, …)")
    target = same_library("target", as_array(target, "target"), input, "input", target)
    rows = _rows(input)
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
    return target


def _rows(input: Array) -> tuple[int, ...]:
    shape, axis = tuple(input.shape), min(1, input.ndim - 1)
    return shape[:axis] + shape[axis + 1 :]


def _classes_last(xp: Any, x: Array, axis: int, classes: int) -> Array:
    if x.ndim == 2:
        return x
    moved = xp.moveaxis(x, axis, -1)
    count = 1
    for length in moved.shape[:-1]:
        count *= length
    return xp.reshape(moved, (count, classes))


def class_weight(weight: Any, input: Array, classes: int) -> Array | None:
    """One factor a class, contiguous, in the dtype of the computation."""
    if weight is None:
        return None
    weight = same_library("weight", floating_array(weight, "weight"), input, "input", weight)
    if tuple(weight.shape) != (classes,):
        raise ValueError(f"weight has {describe(weight)}; wanted shape ({classes},), one number a class")
    xp = namespace(input)
    weight = xp.astype(weight, compute_dtype(xp, input.dtype), copy=False)
    if is_tensor(weight):
        return weight.contiguous()
    return np.ascontiguousarray(weight) if isinstance(weight, np.ndarray) else weight


def readable(x: Array) -> bool:
    """Whether the values of x may be looked at: of a tensor on the CPU, with data, and nothing being compiled."""
    if not is_tensor(x):
        return True
    from .._torch import is_plain

    return bool(x.is_cpu) and is_plain(x)


def divisor_given(num_items: Any, input: Array, options: Options) -> Any:
    """num_items as a positive number; or, where its value cannot be read, as a 0-d tensor beside input."""
    if num_items is None:
        return None
    if options.reduction != "mean":
        raise ValueError(f"num_items replaces what 'mean' divides by; reduction is {options.reduction!r}")
    plain = type(num_items) in (int, float)  # or a symbol of torch.compile, which has no attributes to ask for
    if not plain and hasattr(num_items, "shape"):
        if tuple(num_items.shape) != ():
            raise ValueError(f"num_items has shape {tuple(num_items.shape)}; wanted a number or a 0-d array")
        if dtype_name(num_items.dtype) == "bool" or "complex" in dtype_name(num_items.dtype):
            raise TypeError(f"num_items has dtype {dtype_name(num_items.dtype)}; wanted a real number")
        if is_tensor(num_items) and is_tensor(input):
            num_items = same_library("num_items", num_items.detach(), input, "input")
            if not readable(num_items):
                return num_items
    given = num_items.item() if not plain and hasattr(num_items, "item") else num_items
    number = number_of("num_items", given, beside=input)
    if number <= 0:
        raise ValueError(f"num_items is {num_items}; wanted a positive number")
    return number


def class_indices(target: Array, ignore_index: int, read: bool | None = None) -> Array:
    """Class indices as int32 or int64.

    What a uint64 holds beyond int64 is no class, nor `ignore_index`: an IndexError, if values may be read.
    """
    if dtype_name(target.dtype) in ("int32", "int64"):
        return target
    xp = namespace(target)
    wide = xp.astype(target, xp.int64)
    if dtype_name(target.dtype) != "uint64":
        return wide
    beyond = wide < 0
    if (readable(target) if read is None else read) and xp.any(beyond):
        place, value = _first(beyond, wide, tuple(target.shape))
        raise IndexError(f"target[{place}] is {value + 2**64}; wanted a class, or ignore_index ({ignore_index})")
    return xp.where(beyond, -1 if ignore_index != -1 else -2, wide)


def _first(bad: Array, values: Array, shape: tuple[int, ...]) -> tuple[str, int]:
    """Where `bad` is first True, as indices into `shape`, and the value there."""
    xp = namespace(bad)
    row = int(xp.argmax(xp.reshape(xp.astype(bad, xp.int8), (-1,))))
    place = ", ".join(str(int(i)) for i in np.unravel_index(row, shape)) if shape else "()"
    return place, int(xp.reshape(values, (-1,))[row])


def check_range(target: Array, classes: int, ignore_index: int, shape: tuple[int, ...]) -> None:
    """IndexError, with row and value, if a class index is neither in [0, classes) nor ignore_index.

    `target` is flat; `shape` is the one the caller knows it by.
    """
    if _is_floating(target) or _all_are_classes(target, classes):
        return
    xp = namespace(target)
    bad = ((target < 0) | (target >= classes)) & (target != ignore_index)
    if xp.any(bad):
        place, value = _first(bad, target, shape)
        wanted = f"a class from 0 to {classes - 1}" if classes else "no class at all (input has none)"
        raise IndexError(f"target[{place}] is {value}; wanted {wanted}, or ignore_index ({ignore_index})")


def _is_floating(target: Array) -> bool:
    return target.is_floating_point() if is_tensor(target) else is_floating(target.dtype)


def _all_are_classes(target: Array, classes: int) -> bool:
    """Whether every index lies in [0, classes): quickly told, where an ignored one needs a closer look."""
    if 0 in target.shape:
        return True
    if is_tensor(target):
        if target.numel() <= 64:  # a list is made sooner than one of torch's operations starts
            values = target.tolist()
            return bool(min(values) >= 0 and max(values) < classes)
        low, high = target.aminmax()
        return bool(low.item() >= 0 and high.item() < classes)
    xp = namespace(target)
    return bool(xp.min(target) >= 0) and bool(xp.max(target) < classes)

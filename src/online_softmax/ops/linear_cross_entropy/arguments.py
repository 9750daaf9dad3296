"""The arguments of linear + cross-entropy, checked: nothing is computed or written before every one has passed."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import numpy as np

from ..._arguments import integer, same_library
from ..._arrays import (
    Array,
    as_array,
    describe,
    dtype_name,
    floating_array,
    is_floating,
    is_integer,
    is_tensor,
    namespace,
)
from ..._dispatch import device_type
from ..cross_entropy.arguments import class_indices, class_weight, divisor_given
from ..cross_entropy.options import Options
from . import plan


class Prepared(NamedTuple):
    """Checked arguments with rows of input as (M, H), and the shape of the batch."""

    input: Array
    linear_weight: Array
    linear_bias: Array | None
    target: Array
    weight: Array | None
    num_items: Any
    options: Options
    chunk_rows: int | None
    memory: str
    """As given, but plan.BY_ROWS where "least" goes by rows."""
    shape: tuple[int, ...]
    dtype: Any
    """What products are made in; differs from the arguments' own under autocast."""


def prepare(
    input: Any,
    linear_weight: Any,
    target: Any,
    linear_bias: Any,
    weight: Any,
    num_items: Any,
    options: Options,
    chunk_rows: int | None,
    memory: str,
) -> Prepared:
    """Everything in the form that the computation takes."""
    if linear_bias is None and weight is None and num_items is None and chunk_rows is None:
        ready = _ordinary(input, linear_weight, target, options, memory)
        if ready is not None:
            return ready
    input = _matrix_array("input", input)
    linear_weight = _beside("linear_weight", linear_weight, input)
    if input.ndim == 0:
        raise ValueError(f"input has {describe(input)}; wanted (H,) or (…, H)")
    if linear_weight.ndim != 2 or linear_weight.shape[1] != input.shape[-1] or linear_weight.shape[0] == 0:
        hint = "" if linear_weight.ndim == 2 and linear_weight.shape[0] else _GATHER
        raise ValueError(
            f"linear_weight has {describe(linear_weight)}; wanted (V, H) with H = {input.shape[-1]}, "
            f"as input has shape {tuple(input.shape)}{hint}"
        )
    classes, batch = linear_weight.shape[0], tuple(input.shape[:-1])
    if linear_bias is not None:
        linear_bias = _beside("linear_bias", linear_bias, input)
        if tuple(linear_bias.shape) != (classes,):
            raise ValueError(f"linear_bias has {describe(linear_bias)}; wanted shape ({classes},), one number a class")
    dtype = _product_dtype(input, linear_weight, linear_bias)
    xp = namespace(input)
    ready = Prepared(
        xp.reshape(input, (math.prod(batch), input.shape[-1])) if input.ndim != 2 else input,
        linear_weight,
        linear_bias,
        _target(target, input, batch, classes, options),
        class_weight(weight, input, classes),
        divisor_given(num_items, input, options),
        options,
        check_chunks(chunk_rows, memory),
        memory,
        batch,
        dtype,
    )
    return _planned(ready)


def _planned(ready: Prepared) -> Prepared:
    """With the walk that memory="least" takes."""
    if ready.memory != "least":
        return ready
    (rows, hidden), classes = ready.input.shape, ready.linear_weight.shape[0]
    by_rows = plan.goes_by_rows(rows, hidden, classes, ready.dtype.itemsize, device_type(ready.input))
    return ready._replace(memory=plan.BY_ROWS) if by_rows else ready


def _ordinary(input: Any, linear_weight: Any, target: Any, options: Options, memory: str) -> Prepared | None:
    """Ordinary tensors of one dtype on one device, which pass every check at once; None sends them the long way.

    On a GPU nothing runs before the first product is launched, and that waits for the checks.
    """
    torch = sys.modules.get("torch")
    if torch is None or type(target) is not torch.Tensor or memory not in ("fast", "least"):
        return None
    from .._torch import is_ordinary

    if not is_ordinary(input) or not is_ordinary(linear_weight) or target.dtype is not torch.int64:
        return None
    rows, device, dtype = input.shape[:-1], input.device, input.dtype
    fits = input.ndim >= 2 == linear_weight.ndim and target.shape == rows and target.layout is torch.strided
    if not fits or linear_weight.shape[0] == 0 or linear_weight.shape[1] != input.shape[-1]:
        return None
    together = linear_weight.dtype is dtype and linear_weight.device == device == target.device
    if not together or torch.is_autocast_enabled(device.type):
        return None
    batch = tuple(rows)
    if input.ndim > 2:
        input, target = input.reshape(target.numel(), input.shape[-1]), target.reshape(-1)
    return _planned(Prepared(input, linear_weight, None, target, None, None, options, None, memory, batch, dtype))


_GATHER = "; a weight that is sharded over processes (FSDP, ZeRO-3) has to be gathered first"


def _matrix_array(name: str, x: Any) -> Array:
    sharded = sys.modules.get("torch.distributed.tensor")
    if sharded is not None and isinstance(x, sharded.DTensor):
        raise TypeError(
            f"{name} is a DTensor of {describe(x)}; gather first: pass {name}.full_tensor() or a local part"
        )
    array = floating_array(x, name)
    if not is_tensor(array) and not isinstance(array, np.ndarray):
        raise TypeError(f"{name} is a {type(x).__name__}; wanted a NumPy array or a torch tensor")
    return array


def _beside(name: str, x: Any, input: Array) -> Array:
    return same_library(name, _matrix_array(name, x), input, "input", x)


def _product_dtype(input: Array, linear_weight: Array, linear_bias: Array | None) -> Any:
    """The one dtype of all three; under torch's autocast the dtype that it multiplies in."""
    if is_tensor(input):
        from .._torch import autocast_dtype

        cast = autocast_dtype(input.device.type)
        if cast is not None and not any(dtype_name(x.dtype) == "float64" for x in (input, linear_weight)):
            return cast
    for name, array in (("linear_weight", linear_weight), ("linear_bias", linear_bias)):
        if array is not None and array.dtype != input.dtype:
            raise TypeError(
                f"{name} has dtype {dtype_name(array.dtype)}, input {dtype_name(input.dtype)}: wanted one dtype for "
                "both (outside torch.autocast)"
            )
    # NumPy multiplies narrow floats one by one, in a loop: its products are made in fp32.
    narrow = isinstance(input, np.ndarray) and dtype_name(input.dtype) in ("float16", "bfloat16")
    return np.dtype(np.float32) if narrow else input.dtype


def _target(target: Any, input: Array, batch: tuple[int, ...], classes: int, options: Options) -> Array:
    target = same_library("target", as_array(target, "target"), input, "input", target)
    probabilities = is_floating(target.dtype)
    if not probabilities and not is_integer(target.dtype):
        raise TypeError(f"target has {describe(target)}; wanted class indices (integers) or probabilities (floating)")
    wanted = (*batch, classes) if probabilities else batch
    if tuple(target.shape) != wanted:
        what = "probabilities" if probabilities else "class indices"
        raise ValueError(
            f"target has {describe(target)}; {what} for input of {tuple(input.shape)} and {classes} classes have "
            f"shape {wanted}"
        )
    if not probabilities:
        return namespace(target).reshape(class_indices(target, options.ignore_index), (-1,))
    if options.ignore_index >= 0:
        raise ValueError(f"ignore_index is {options.ignore_index}; it has no meaning for probability targets")
    if is_tensor(target) and target.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise ValueError(
            "target requires grad: linear_cross_entropy has no gradient for probabilities; detach them, or use "
            "cross_entropy on logits"
        )
    return namespace(target).reshape(target, (-1, classes))


def check_chunks(chunk_rows: Any, memory: str) -> int | None:
    """chunk_rows= and memory= checked; rows a chunk, or None."""
    if memory not in ("fast", "least"):
        raise ValueError(f"memory is {memory!r}; wanted 'fast' or 'least'")
    if chunk_rows is None:
        return None
    if memory == "least":
        raise ValueError(f"chunk_rows is {chunk_rows!r}; memory='least' takes chunks of classes, not of rows")
    number = integer("chunk_rows", chunk_rows, "an int or None")
    if number < 1:
        raise ValueError(f"chunk_rows is {number}; wanted at least 1")
    return number

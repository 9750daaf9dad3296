"""The arguments of attention and merge_attention, checked and brought to the forms that implementations take."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from ..._arguments import flag, integer, number_of, same_library
from ..._arrays import Array, as_array, as_floating, compute_dtype, describe, dtype_name, is_tensor, namespace
from .options import Options


class Prepared(NamedTuple):
    """q (B, K, G, L, D): K key heads, G query heads for each; k, v (B, K, length, ·); mask (B, K, G, L, length)."""

    q: Array
    k: Array
    v: Array
    mask: Array | None
    options: Options
    restore: Callable[[Array], Array]
    """Gives out, or lse, its public shape."""


def prepare(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None, block: int | None) -> Prepared:
    """Checked arguments of attention in the form of this module."""
    given = {"q": q, "k": k, "v": v}
    q, k, v = (as_floating(as_array(x, name), name) for name, x in given.items())
    xp = namespace(q)
    if q.ndim < 2:
        raise ValueError(f"q has {describe(q)}; wanted (…, heads, length, head size) or (length, head size)")
    for name, x in (("k", k), ("v", v)):
        same_library(name, x, q, "q", given[name])
        if dtype_name(x.dtype) != dtype_name(q.dtype):
            raise TypeError(f"{name} has dtype {dtype_name(x.dtype)}, q {dtype_name(q.dtype)}: wanted one dtype")
        if x.ndim != q.ndim:
            raise ValueError(f"{name} has {describe(x)}, q {describe(q)}: wanted as many axes in {name} as in q")
    mask = None if mask is None else same_library("mask", as_array(mask, "mask"), q, "q", mask)
    plain = q.ndim == 2
    if plain:
        q, k, v = (x[None, ...] for x in (q, k, v))
    *batch, heads, queries, size = q.shape
    *key_batch, key_heads, length, key_size = k.shape
    if key_batch != batch or key_size != size or not divides(key_heads, heads):
        raise ValueError(
            f"k has {describe(k)}; for q of {tuple(q.shape)} wanted {(*batch, 'heads', 'length', size)}, "
            f"heads dividing {heads}"
        )
    if tuple(v.shape[:-1]) != tuple(k.shape[:-1]):
        raise ValueError(f"v has {describe(v)}; wanted {(*k.shape[:-1], 'head size')}, as many keys as k")
    group = heads // key_heads if key_heads else 1
    count = math.prod(batch)
    scores = (*batch, heads, queries, length)
    return Prepared(
        xp.reshape(q, (count, key_heads, group, queries, size)),
        xp.reshape(k, (count, key_heads, length, size)),
        xp.reshape(v, (count, key_heads, length, v.shape[-1])),
        _mask(xp, mask, scores[1:] if plain else scores, (count, key_heads, group, queries, length)),
        Options(checked_scale(scale, q), flag("causal", causal), _block(block)),
        lambda a: xp.reshape(a, (*batch, *(() if plain else (heads,)), queries, *a.shape[4:])),
    )


def divides(part: int, whole: int) -> bool:
    """Whether `part` key heads serve `whole` heads; none serve none."""
    return part == whole if part == 0 else whole % part == 0


def _mask(xp: Any, mask: Array | None, scores: tuple[int, ...], shape: tuple[int, ...]) -> Array | None:
    if mask is None:
        return None
    if mask.dtype != xp.bool:
        if dtype_name(mask.dtype).startswith(("int", "uint")):
            raise TypeError(f"mask has dtype {dtype_name(mask.dtype)}; wanted bool (True: takes part) or floating")
        mask = as_floating(mask, "mask")
    try:
        return xp.reshape(xp.broadcast_to(mask, scores), shape)
    except (ValueError, RuntimeError):
        raise ValueError(f"mask has {describe(mask)}; wanted a shape that broadcasts to the scores' {scores}") from None


def checked_scale(scale: Any, q: Array) -> float:
    """scale=, or 1 / √(head size) where none is given."""
    if scale is None:
        return 1.0 / math.sqrt(max(q.shape[-1], 1))
    return number_of("scale", scale, "a plain number or None", beside=q)


def _block(block: Any) -> int | None:
    if block is None:
        return None
    number = integer("block", block, "an int or None")
    if number < 1:
        raise ValueError(f"block is {number}; wanted at least 1")
    return number


class Partials(NamedTuple):
    """Checked partial results: both as they came (one stacked array, or several), lses in the compute dtype."""

    outs: Array | list[Array]
    lses: Array | list[Array]


def prepare_partials(outs: Any, lses: Any) -> Partials:
    """Partial results of one shape, dtype, library and device; a stacked array stays one."""
    if _ready(outs, lses):
        return Partials(outs, lses)
    given, given_lses = outs, lses
    outs, lses = _partials("outs", outs), _partials("lses", lses)
    each_out, each_lse = separate(outs), separate(lses)
    first = each_out[0]
    xp = namespace(first)
    if len(each_out) != len(each_lse):
        raise ValueError(f"outs holds {len(each_out)} partial results, lses {len(each_lse)}: wanted as many")
    if first.ndim == 0:
        raise ValueError("outs[0] has shape (); wanted (…, head size)")
    for i, (out, lse) in enumerate(zip(each_out, each_lse, strict=True)):
        same_library(f"outs[{i}]", out, first, "outs[0]", given if hasattr(given, "dtype") else given[i])
        same_library(f"lses[{i}]", lse, first, "outs[0]", given_lses if hasattr(given_lses, "dtype") else given_lses[i])
        if tuple(out.shape) != tuple(first.shape) or out.dtype != first.dtype:
            raise ValueError(f"outs[{i}] has {describe(out)}, outs[0] {describe(first)}: wanted one shape and dtype")
        if tuple(lse.shape) != tuple(first.shape[:-1]):
            raise ValueError(f"lses[{i}] has {describe(lse)}; wanted shape {tuple(first.shape[:-1])}")
    compute = compute_dtype(xp, first.dtype, *(lse.dtype for lse in each_lse))
    if isinstance(lses, list):
        lses = [xp.astype(lse, compute, copy=False) for lse in lses]
    else:
        lses = xp.astype(lses, compute, copy=False)
    return Partials(outs, lses)


def _ready(outs: Any, lses: Any) -> bool:
    """Whether these are tensors that pass every check and need no conversion: one short look at each."""
    torch = sys.modules.get("torch")
    if torch is None or torch.compiler.is_compiling():
        return False
    first, second = _uniform(torch, outs), _uniform(torch, lses)
    if first is None or second is None:
        return False
    count, shape, dtype, device = first
    narrow = dtype in (torch.bfloat16, torch.float16, torch.float32)
    return narrow and shape != () and second == (count, shape[:-1], torch.float32, device)


def _uniform(torch: Any, given: Any) -> tuple[int, Any, Any, Any] | None:
    """Number, shape, dtype and device of tensors that kernels can read as they are; None for anything else."""
    stacked = isinstance(given, torch.Tensor)
    tensors = [given] if stacked else given
    if not (isinstance(tensors, list) and tensors and isinstance(tensors[0], torch.Tensor)):
        return None
    shape, dtype, device = tensors[0].shape, tensors[0].dtype, tensors[0].device
    for x in tensors:
        if not isinstance(x, torch.Tensor) or x.shape != shape or x.dtype != dtype or x.device != device:
            return None
        if x.layout != torch.strided or x.is_nested or x.is_neg():
            return None
    if not stacked:
        return len(tensors), tuple(shape), dtype, device
    return (shape[0], tuple(shape[1:]), dtype, device) if shape and shape[0] else None


def _partials(name: str, given: Any) -> Any:
    if isinstance(given, list | tuple):
        if not given:
            raise ValueError(f"{name} is empty; wanted at least one partial result")
        return [as_floating(as_array(each, f"{name}[{i}]"), f"{name}[{i}]") for i, each in enumerate(given)]
    given = as_floating(as_array(given, name), name)
    if given.ndim == 0 or given.shape[0] == 0:
        raise ValueError(f"{name} has {describe(given)}; wanted at least one partial result along the first axis")
    return given


def separate(stacked: Any) -> list[Array]:
    """The partial results one by one, as views."""
    if is_tensor(stacked):
        return list(stacked.unbind(0))
    return list(stacked) if isinstance(stacked, list) else [stacked[i, ...] for i in range(stacked.shape[0])]

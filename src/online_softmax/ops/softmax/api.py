"""softmax, log_softmax and logsumexp as users call them: arguments, checks, and the way to an implementation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..._arguments import answers_synonyms, as_array_like, check_where, flag, merge_axes, normalise_axes
from ..._arrays import (
    Array,
    compute_dtype,
    detached,
    device,
    floating_array,
    is_floating,
    is_tensor,
    kind,
    namespace,
    result_dtype,
)
from ..._dispatch import implementation, refuse_named
from ..._out import check_out
from .weighted import weighted_logsumexp


class SignedLogSumExp(NamedTuple):
    """log|Σ b · exp(x)| and the sign of the sum: −1, 0 or 1 (NaN for NaN), both in the result's dtype and shape."""

    value: Array
    sign: Array


@answers_synonyms
def softmax(
    x: Array,
    axis: int | tuple[int, ...] | None = -1,
    *,
    where: Array | None = None,
    dtype: Any = None,
    out: Array | None = None,
    impl: str = "auto",
) -> Array:
    """exp(x) / Σ exp(x) along `axis`, at any height of x.

    Parameters
    ----------
    x : array or tensor
        Real numbers of any shape and strides, lists and numbers too. Never modified.
    axis : int, tuple of ints, or None
        The axis or axes over which the result sums to 1; None: all of them.
    where : bool array, optional
        Broadcasts to x. Elements where it is False take no part and come out as 0.
    dtype : floating dtype, optional
        dtype of the result; default x's own. Computed in the wider of the two, at least fp32, and rounded once.
    out : array, optional
        Where to write: x's shape, the result's dtype; x itself, or no memory in common with x.
    impl : {"auto", "reference", "cpu", "cuda"}
        Which implementation runs; a named one runs or raises.

    Returns
    -------
    array
        Shape of x, kind of x. Integers and bools become the library's default float. −inf gives exactly 0; a row
        with NaN or +inf, or of nothing but −inf, is NaN; a row of which `where` keeps nothing is 0.

    Raises
    ------
    TypeError
        If x is complex or no array, or `out`/`where` is of another library or device.
    ValueError
        If `axis` is out of range, or `out` or `where` does not fit; or `out` is given where autograd records.

    Examples
    --------
    >>> import numpy as np, online_softmax as osm
    >>> osm.softmax(np.array([0.0, np.log(3.0)]))
    array([0.25, 0.75])

    Source: Milakov & Gimelshein 2018, arXiv:1805.02867, algorithm 3.
    """
    return _normalised("softmax", x, axis, where, dtype, out, impl)


@answers_synonyms
def log_softmax(
    x: Array,
    axis: int | tuple[int, ...] | None = -1,
    *,
    where: Array | None = None,
    dtype: Any = None,
    out: Array | None = None,
    impl: str = "auto",
) -> Array:
    """x − log Σ exp(x) along `axis`, in nats.

    Parameters and errors are those of `softmax`.

    Returns
    -------
    array
        Shape of x. −inf gives −inf; a row with NaN or +inf, or of nothing but −inf, is NaN; elements that `where`
        leaves out are −inf.

    Examples
    --------
    >>> import numpy as np, online_softmax as osm
    >>> osm.log_softmax(np.array([1000.0, 1000.0]))
    array([-0.69314718, -0.69314718])

    Source: Milakov & Gimelshein 2018, arXiv:1805.02867.
    """
    return _normalised("log_softmax", x, axis, where, dtype, out, impl)


_torch_op: Any = None


def _tensors() -> Any:
    """The module for tensors, which imports torch; the statement would cost a small call half a microsecond.

    Not `functools.cache`, of which torch.compile warns.
    """
    global _torch_op
    if _torch_op is None:
        from . import torch_op

        _torch_op = torch_op
    return _torch_op


def _normalised(name: str, x: Array, axis: Any, where: Any, dtype: Any, out: Any, impl: str) -> Array:
    if type(x) is not np.ndarray and is_tensor(x):
        return _tensors().normalised(name, x, axis, where, dtype, out, impl)
    x = floating_array(x, "x")
    axes = normalise_axes(axis, x.ndim)
    dtype = x.dtype if dtype is None else result_dtype(dtype, x)
    if out is not None:
        check_out(out, x, dtype)
    run = getattr(implementation("softmax", x, impl), name)
    if where is None and len(axes) == 1 and x.ndim:
        return run(x, axes[0], dtype, out)
    xp = namespace(x)
    mask = None if where is None else check_where(where, x)
    rows, restore = merge_axes(xp, x if mask is None else xp.where(mask, x, -xp.inf), axes)
    y = restore(run(rows, rows.ndim - 1, dtype))
    if mask is not None:
        y = xp.where(mask, y, xp.asarray(0.0 if name == "softmax" else -xp.inf, dtype=dtype, device=device(x)))
    if out is None:
        return y
    out[...] = y
    return out


@answers_synonyms
def logsumexp(
    x: Array,
    axis: int | tuple[int, ...] | None = None,
    *,
    b: Array | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: Array | None = None,
    dtype: Any = None,
    impl: str = "auto",
) -> Array | SignedLogSumExp:
    """log Σ b · exp(x) along `axis`, natural log, at any height of x.

    Parameters
    ----------
    x : array or tensor
        Real numbers of any shape and strides. Never modified.
    axis : int, tuple of ints, or None
        The axis or axes summed over; None: all of them.
    b : array, optional
        Factors that broadcast to x, of any sign. Where b is 0 the element takes no part, even if it is NaN; an infinite
        or NaN factor of −inf is NaN. Runs on the reference implementation.
    keepdims : bool
        Keep the summed axes with length 1.
    return_sign : bool
        Return the logarithm of the absolute sum, and its sign.
    where, dtype, impl
        As in `softmax`.

    Returns
    -------
    array, or SignedLogSumExp(value, sign)
        Shape of x without the summed axes; `dtype`, or what x's and b's dtypes promote to. −inf where there is nothing
        (or nothing but −inf) to sum; +inf if an element is +inf; NaN if one is NaN, or if the sum is negative and no
        sign was asked for. Small terms near zero are kept: logsumexp([0, −40]) is 4.2e-18.

    Raises
    ------
    TypeError, ValueError
        As in `softmax`.

    Examples
    --------
    >>> import numpy as np, online_softmax as osm
    >>> round(float(osm.logsumexp(np.array([1000.0, 1000.0]))), 6)
    1000.693147

    Source: Milakov & Gimelshein 2018, arXiv:1805.02867; b and the sign as in scipy.special.logsumexp.
    """
    keepdims, return_sign = flag("keepdims", keepdims), flag("return_sign", return_sign)
    promoted = dtype is None
    if is_tensor(x):
        run, x, axes, dtype = _tensors().prepare_logsumexp(x, axis, dtype, impl)
    else:
        x = floating_array(x, "x")
        axes, dtype = normalise_axes(axis, x.ndim), result_dtype(dtype, x)
        run = implementation("softmax", x, impl).logsumexp
    xp, shape = namespace(x), tuple(x.shape)
    mask = None if where is None else check_where(where, x)
    if mask is not None:
        x = xp.where(mask, x, -xp.inf)
    sign = None
    if b is not None:
        refuse_named(impl, "b=")
        rows, _ = merge_axes(xp, x, axes)
        dtype = _promoted(xp, dtype, b, x) if promoted else dtype
        factors = _factors(xp, b, mask, x, compute_dtype(xp, x.dtype, dtype))
        value, sign = weighted_logsumexp(xp, rows, merge_axes(xp, factors, axes)[0])
        if not return_sign:
            value = xp.where(sign < 0, xp.nan, value)
        value, sign = xp.astype(value, dtype), xp.astype(sign, dtype)
    elif len(axes) == 1 and x.ndim > 0:
        value = run(x, axes[0], dtype)
    else:
        rows, _ = merge_axes(xp, x, axes)
        value = run(rows, rows.ndim - 1, dtype)
    if return_sign and sign is None:
        sign = xp.where(value == -xp.inf, 0.0, xp.where(xp.isnan(value), value, 1.0))
        sign = xp.astype(sign, dtype)
    sign = detached(sign)
    if keepdims:
        kept = tuple(1 if i in axes else length for i, length in enumerate(shape))
        value, sign = xp.reshape(value, kept), None if sign is None else xp.reshape(sign, kept)
    value = _scalar(value)
    return SignedLogSumExp(value, _scalar(sign)) if return_sign else value


def _promoted(xp: Any, dtype: Any, b: Any, x: Array) -> Any:
    """The result's dtype beside factors that have one; a number has none, nor has a list beside a tensor."""
    if not hasattr(b, "dtype") and not (isinstance(x, np.ndarray) and isinstance(b, list | tuple)):
        return dtype
    of_b = as_array_like("b", b, x).dtype
    floating_array(xp.empty((0,), dtype=of_b, device=device(x)), "b")  # complex and wider ones are refused
    if kind(x) == "other" and not is_floating(of_b):
        return dtype
    try:
        return xp.result_type(dtype, of_b)
    except TypeError:  # NumPy promotes bfloat16, which is another package's, with few others
        return compute_dtype(xp, dtype, of_b)


def _factors(xp: Any, b: Any, mask: Any, x: Array, dtype: Any) -> Array:
    """b= as an array of x's shape, 0 where `mask` leaves out."""
    b = xp.astype(floating_array(as_array_like("b", b, x), "b"), dtype)
    if mask is not None:
        b = xp.where(mask, b, 0.0)
    try:
        return xp.broadcast_to(b, x.shape)
    except (ValueError, RuntimeError):
        raise ValueError(f"b has shape {tuple(b.shape)}, which does not broadcast to x of {tuple(x.shape)}") from None


def _scalar(value: Any) -> Any:
    """A 0-d NumPy array as the NumPy scalar that NumPy's own reductions return."""
    return value[()] if type(value).__module__ == "numpy" and value.ndim == 0 else value

"""Cross-entropy with its gradient in array-API code: readable, right for every row, not fast.

With x the logits after scale and softcap, q the target distribution (one-hot or given), w the class weights:

    q'     = (1 − ε) q + ε / C
    ce     = Σ_c w_c q'_c (lse − x_c)          a class of mass 0 adds exactly 0, whatever its logit
    loss   = ce + z · lse²
    dx_c   = p_c (A Σ w q' + 2 z lse Z + grad_lse) − A w_c q'_c,      p = exp(x − lse)

where A and Z are the incoming gradient over what "mean" divides the two terms by.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._arrays import Array, compute_dtype, device, namespace
from ...state import exp_against
from .._rows import maximum_and_rest, new_array, pieces, row_sum
from .gradient import gradient_rows
from .options import Forward, Options, Saved
from .terms import capped, class_mass, divide_by

_quiet = np.errstate(all="ignore")


@_quiet
def forward(
    logits: Array,
    target: Array,
    weight: Array | None,
    num_items: Any,
    options: Options,
    *,
    aux: bool = False,
    gradient: Any = None,
) -> Forward:
    """Losses of (M, C) logits, and their gradient when `gradient` is True or an array to write to."""
    xp = namespace(logits)
    compute = compute_dtype(xp, logits.dtype)
    divisors = divide_by(xp, target, weight, logits.shape[1], num_items, options, compute)
    target_array = _gradient_array(xp, logits, gradient)
    columns: list[tuple[Array, ...]] = []
    for piece in pieces(logits):
        rows = _rows_forward(xp, logits[piece], target[piece], weight, options, compute, aux)
        columns.append(rows)
        if gradient is not None:
            one = xp.ones((), dtype=compute, device=device(logits))
            saved = Saved(rows[1], rows[2], divisors)
            part = _rows_backward(xp, logits[piece], target[piece], weight, saved, options, one, None)
            if target_array is None:
                target_array = part
            else:
                target_array[piece] = part
    joined = [xp.concat(parts, axis=0) for parts in zip(*columns, strict=True)]
    if not joined:
        joined = list(_rows_forward(xp, logits, target, weight, options, compute, aux))
    ce, lse, lse_low, z, *extra = joined
    loss = _reduced(xp, ce, z, divisors, options)
    predicted, entropy = extra if aux else (None, None)
    return Forward(loss, lse, lse_low, divisors, z if aux else None, predicted, entropy, target_array)


@_quiet
def backward(
    logits: Array,
    target: Array,
    weight: Array | None,
    lse: Array,
    lse_low: Array,
    divisors: Array,
    options: Options,
    grad_loss: Array,
    grad_lse: Array | None,
    gradient: Any = True,
) -> Array:
    """The gradient of (M, C) logits for any incoming gradient of the loss and of lse."""
    xp, saved = namespace(logits), Saved(lse, lse_low, divisors)
    out = _gradient_array(xp, logits, gradient)
    for piece in pieces(logits) if out is not None else [(...,)]:
        part = _rows_backward(
            xp,
            logits[piece],
            target[piece],
            weight,
            saved.rows(piece),
            options,
            grad_loss if grad_loss.ndim == 0 else grad_loss[piece],
            None if grad_lse is None else grad_lse[piece],
        )
        if out is None:
            return part
        out[piece] = part
    return out


def rescale(gradient: Array, grad_loss: Array) -> Array:
    """gradient · grad_loss in place; untouched when grad_loss is exactly 1."""
    if grad_loss != 1:
        gradient *= grad_loss
    return gradient


def _rows_forward(
    xp: Any, logits: Array, target: Array, weight: Array | None, options: Options, compute: Any, aux: bool
) -> tuple[Array, ...]:
    """(ce, lse, lse_low, z) of a piece of rows, and with aux (predicted, entropy)."""
    x = capped(xp, xp.astype(logits, compute), options)
    m, rest = maximum_and_rest(xp, x, compute)
    log_s = xp.log1p(rest)
    lse = m + xp.where(m == -xp.inf, xp.where(xp.isnan(rest), rest, 0.0), log_s)
    finite = xp.isfinite(lse)
    lse_low = xp.where(finite, (m - lse) + log_s, 0.0)
    # −log p from x − m, not from the rounded lse: it keeps small gaps between large logits.
    distance = (m[..., None] - x) + log_s[..., None]
    mass, ignored, bad = class_mass(xp, target, weight, x.shape[-1], options, compute)
    ce = row_sum(xp, xp.where(mass == 0, 0.0, mass * distance))
    # A row without a finite lse (NaN, +inf, nothing but -inf) has no loss; one without classes has loss 0.
    ce = xp.where(finite | (x.shape[-1] == 0), ce, xp.nan)
    ce = xp.where(ignored, 0.0, xp.where(bad, xp.nan, ce))
    z = xp.where(ignored, 0.0, options.z_loss * lse * lse) if options.z_loss else xp.zeros_like(lse)
    if not aux:
        return ce, lse, lse_low, z
    e = exp_against(xp, x, m[..., None])
    spread = row_sum(xp, xp.where(e == 0, 0.0, e * (m[..., None] - x)))
    entropy = xp.where(finite, log_s + spread / (1.0 + rest), xp.nan)
    if x.shape[-1] == 0:
        return ce, lse, lse_low, z, xp.zeros(lse.shape, dtype=xp.int64, device=device(lse)), entropy
    return ce, lse, lse_low, z, xp.astype(xp.argmax(x, axis=-1), xp.int64), entropy


def _rows_backward(
    xp: Any,
    logits: Array,
    target: Array,
    weight: Array | None,
    saved: Saved,
    options: Options,
    grad_loss: Array,
    grad_lse: Array | None,
) -> Array:
    dx = gradient_rows(xp, logits, target, weight, saved, options, grad_loss, grad_lse)
    return xp.astype(dx, logits.dtype)


def _reduced(xp: Any, ce: Array, z: Array, divisors: Array, options: Options) -> Array:
    if options.reduction == "none":
        return ce + z
    loss = row_sum(xp, ce) / divisors[0]
    return loss + row_sum(xp, z) / divisors[1] if options.z_loss else loss


def _gradient_array(xp: Any, logits: Array, gradient: Any) -> Array | None:
    """The array the gradient goes to; None where none is wanted or arrays cannot be written to."""
    if gradient is None or gradient is not True:
        return gradient
    return new_array(xp, logits.shape, logits.dtype, logits)

"""The gradient of the loss as one formula without in-place steps, so that autograd can differentiate it again."""

from __future__ import annotations

from typing import Any

from ..._arrays import Array, compute_dtype
from .._rows import row_sum
from .options import Options, Saved
from .terms import capped, capped_slope, class_mass


def gradient_rows(
    xp: Any,
    logits: Array,
    target: Array,
    weight: Array | None,
    saved: Saved,
    options: Options,
    grad_loss: Array,
    grad_lse: Array | None,
) -> Array:
    """d loss / d logits of (rows, C) logits in the compute dtype, for incoming gradients of the loss and of lse."""
    compute, (lse, lse_low, divisors) = compute_dtype(xp, logits.dtype), saved
    x = capped(xp, xp.astype(logits, compute), options)
    mass, ignored, bad = class_mass(xp, target, weight, x.shape[-1], options, compute)
    class_share, z_share = incoming(xp, grad_loss, divisors, ignored)
    # A row without a finite lse (NaN, +inf, nothing but −inf) has no gradient to give: NaN.
    steady = xp.where(xp.isfinite(lse), lse, xp.nan)
    p = xp.exp((x - steady[..., None]) - lse_low[..., None])
    p = xp.where(p < xp.finfo(compute).smallest_normal, 0.0, p)
    slope = capped_slope(xp, x, options)
    pull = class_share * row_sum(xp, mass)
    if options.z_loss:
        pull = pull + 2.0 * options.z_loss * lse * z_share
    dx = (p * pull[..., None] - class_share[..., None] * mass) * slope
    # Selected, not multiplied: an ignored row is exactly 0 even where it holds NaN.
    dx = xp.where(ignored[..., None], 0.0, xp.where(bad[..., None], xp.nan, dx))
    if grad_lse is None:
        return dx
    return dx + xp.where((grad_lse == 0)[..., None], 0.0, p * grad_lse[..., None] * slope)


def incoming(xp: Any, grad_loss: Array, divisors: Array, ignored: Array) -> tuple[Array, Array]:
    """grad_loss over each divisor, a number a row; 0 for ignored rows, whose divisor may be NaN."""
    grad_loss = xp.reshape(grad_loss, (-1,))
    by_class, by_row = (grad_loss / xp.where(ignored, xp.inf, divisors[i]) for i in (0, 1))
    return by_class, by_row

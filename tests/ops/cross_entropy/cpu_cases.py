"""Rows for the native kernels, and what they come to by the formula in float64."""

from __future__ import annotations

import numpy as np


def case(rows, classes, dtype, seed=0, ignored=True):
    rng = np.random.default_rng(seed)
    x = (3 * rng.standard_normal((rows, classes))).astype(dtype)
    target = rng.integers(0, classes, rows)
    if ignored:
        target[rows // 2] = -100
    return x, target


def expected(x, target, weight, num_items, o, grad_loss=1.0, grad_lse=None):
    """(loss, lse, gradient, entropy, z) by the formula, in float64."""
    u = o.scale * np.asarray(x, np.float64)
    z = u if o.softcap is None else o.softcap * np.tanh(u / o.softcap)
    slope = o.scale * (1.0 if o.softcap is None else 1 - (z / o.softcap) ** 2)
    rows, classes = z.shape
    m = z.max(1, keepdims=True)
    lse = (m + np.log(np.exp(z - m).sum(1, keepdims=True)))[:, 0]
    p = np.exp(z - lse[:, None])
    w = np.ones(classes) if weight is None else np.asarray(weight, np.float64)
    if target.ndim == 1:
        kept = target != o.ignore_index
        q = (np.arange(classes) == np.where(kept, target, 0)[:, None]).astype(np.float64)
        class_weights = np.where(kept, w[np.where(kept, target, 0)], 0).sum()
    else:
        kept, q, class_weights = np.ones(rows, bool), np.asarray(target, np.float64), float(rows)
    mass = w * ((1 - o.label_smoothing) * q + o.label_smoothing / classes) * kept[:, None]
    with np.errstate(invalid="ignore"):
        ce = np.where(mass == 0, 0, mass * (lse[:, None] - z)).sum(1)
    zl = np.where(kept, o.z_loss * lse**2, 0)
    d, k = (class_weights, kept.sum()) if o.reduction == "mean" else (1.0, 1.0)
    if num_items is not None:
        d = k = num_items
    loss = ce + zl if o.reduction == "none" else ce.sum() / d + zl.sum() / k
    grad_loss = np.broadcast_to(grad_loss, rows)
    pull = grad_loss / d
    total = pull * mass.sum(1) + np.where(kept, 2 * o.z_loss * lse * grad_loss / k, 0)
    total = total + (0 if grad_lse is None else grad_lse)
    gradient = (p * total[:, None] - pull[:, None] * mass) * slope
    with np.errstate(invalid="ignore", divide="ignore"):
        entropy = -np.where(p == 0, 0, p * np.log(p)).sum(1)
    return loss, lse, gradient, entropy, zl


def close(result, truth, dtype, factor=100):
    eps = float(np.finfo(dtype).eps)
    scale = max(1e-30, float(np.nanmax(np.abs(truth), initial=0.0)))
    return np.allclose(
        np.asarray(result, np.float64), truth, rtol=factor * eps, atol=factor * eps * scale, equal_nan=True
    )

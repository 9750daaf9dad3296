"""Right answers that owe nothing to the library: decimals for single rows, float64 for many, definitions for losses."""

import decimal
import math

import numpy as np
import torch
from tests.arrays import INF, NAN

# Enough digits that 1 + exp(-700) is not 1.
_CONTEXT = decimal.Context(prec=400, Emin=-decimal.MAX_EMAX, Emax=decimal.MAX_EMAX)


def exact_logsumexp(row):
    """log Σ exp of a row of finite or −inf numbers, as good as correctly rounded."""
    with decimal.localcontext(_CONTEXT):
        terms = [decimal.Decimal(float(x)) for x in row if x != -INF]
        if not terms:
            return -INF
        top = max(terms)
        return float(top + sum((x - top).exp() for x in terms).ln())


def exact_log_softmax(row):
    """x − log Σ exp(x) of a row with a finite maximum."""
    with decimal.localcontext(_CONTEXT):
        terms = [decimal.Decimal(float(x)) if x != -INF else None for x in row]
        top = max(x for x in terms if x is not None)
        log_s = sum((x - top).exp() for x in terms if x is not None).ln()
        return [-INF if x is None else float(x - top - log_s) for x in terms]


def exact_softmax(row):
    """exp(x) / Σ exp(x) of a row with a finite maximum."""
    with decimal.localcontext(_CONTEXT):
        terms = [decimal.Decimal(float(x)) if x != -INF else None for x in row]
        top = max(x for x in terms if x is not None)
        e = [decimal.Decimal(0) if x is None else (x - top).exp() for x in terms]
        s = sum(e)
        return [float(x / s) for x in e]


def rows_logsumexp(x, axis=-1):
    """log Σ exp over an axis in float64, each sum exactly rounded; special rows by the table of the design."""
    x = np.moveaxis(np.asarray(x, dtype=np.float64), axis, -1)
    flat = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return np.array([_one_logsumexp(row) for row in flat]).reshape(x.shape[:-1])


def _one_logsumexp(row):
    if np.isnan(row).any():
        return NAN
    top = row.max(initial=-INF)
    if math.isinf(top):
        return top
    e = np.exp(row - top)
    e[row.argmax()] = 0.0
    return top + math.log1p(math.fsum(e))


def rows_log_softmax(x, axis=-1):
    """log-softmax over an axis in float64; NaN for rows without a finite log-sum-exp."""
    x = np.asarray(x, dtype=np.float64)
    top = x.max(axis, keepdims=True, initial=-INF)
    steady = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(invalid="ignore"):
        y = (x - steady) - np.expand_dims(rows_logsumexp(x - steady, axis), axis)
        return np.where(np.isfinite(top), y, NAN)


def rows_softmax(x, axis=-1):
    """Softmax over an axis in float64; NaN for rows without a finite log-sum-exp.

    x − m is rounded to float64, as it must be by whoever computes in float64; all else is done in a wider format where
    there is one: the exponential of a rounded logarithm would be as many units off as the logarithm is large.
    """
    x = np.asarray(x, dtype=np.float64)
    finite = np.expand_dims(np.isfinite(rows_logsumexp(x, axis)), axis)
    below = np.where(finite, x, 0)
    below = below - below.max(axis, keepdims=True, initial=-INF)
    with np.errstate(under="ignore"):
        e = np.exp(below.astype(np.longdouble))
        p = (e / e.sum(axis, keepdims=True)).astype(np.float64)
    return np.where(finite, p, NAN)


def softmax_gradient(grad, y, axis=-1):
    """The gradient of x in float64, from y = softmax(x) and the incoming one."""
    grad, y = np.asarray(grad, np.float64), np.asarray(y, np.float64)
    return y * (grad - (grad * y).sum(axis, keepdims=True))


def log_softmax_gradient(grad, y, axis=-1):
    """The gradient of x in float64, from y = log_softmax(x) and the incoming one."""
    grad, y = np.asarray(grad, np.float64), np.asarray(y, np.float64)
    return grad - np.exp(y) * grad.sum(axis, keepdims=True)


def loss_by_definition(
    x,
    target,
    weight=None,
    *,
    ignore_index=-100,
    reduction="mean",
    label_smoothing=0.0,
    num_items=None,
    scale=1.0,
    softcap=None,
    z_loss=0.0,
):
    """Cross-entropy of (rows, C) float64 logits, written as the documentation defines it, for torch's own autograd."""
    x = scale * x.to(torch.float64)
    if softcap is not None:
        x = softcap * torch.tanh(x / softcap)
    classes = x.shape[1]
    lse = torch.logsumexp(x, 1)
    if target.is_floating_point():
        kept, q = torch.ones(len(x), dtype=torch.bool), target.to(torch.float64)
    else:
        kept = target != ignore_index
        q = torch.nn.functional.one_hot(torch.where(kept, target, 0).to(torch.int64), classes).to(torch.float64)
    weights = torch.ones(classes, dtype=torch.float64) if weight is None else weight.to(torch.float64)
    mass = ((1 - label_smoothing) * q + label_smoothing / classes) * weights
    class_term = torch.where(kept, torch.where(mass == 0, 0.0, mass * (lse[:, None] - x)).sum(1), 0.0)
    z_term = torch.where(kept, z_loss * lse**2, 0.0) if z_loss else torch.zeros_like(lse)
    if reduction == "none":
        return class_term + z_term
    if reduction == "sum":
        return class_term.sum() + z_term.sum()
    count = kept.sum()
    divisor = count if target.is_floating_point() else (q * weights).sum(1)[kept].sum()
    if num_items is not None:
        divisor = count = num_items
    return class_term.sum() / divisor + (z_term.sum() / count if z_loss else 0.0)


def gradient_by_definition(x, target, weight=None, grad_loss=None, **options):
    """d loss_by_definition / d x by torch's autograd in float64."""
    leaf = x.detach().to(torch.float64).requires_grad_()
    loss = loss_by_definition(leaf, target, weight, **options)
    (gradient,) = torch.autograd.grad(loss, leaf, torch.ones_like(loss) if grad_loss is None else grad_loss)
    return gradient

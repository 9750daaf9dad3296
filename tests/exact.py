"""The formulas in float64 NumPy, and the distance of a result from them."""

from __future__ import annotations

import numpy as np


def states(x, axis):
    """(m, log of the sum of exp(x - m) by way of the terms besides one maximum)."""
    x = np.asarray(x, np.float64)
    m = x.max(axis, keepdims=True)
    e = np.exp(x - m)
    np.put_along_axis(e, np.expand_dims(x.argmax(axis), axis), 0.0, axis)
    return m, np.log1p(e.sum(axis, keepdims=True))


def log_softmax(x, axis):
    m, log = states(x, axis)
    return (np.asarray(x, np.float64) - m) - log


def softmax(x, axis):
    return np.exp(log_softmax(x, axis))


def logsumexp(x, axis):
    m, log = states(x, axis)
    return (m + log).squeeze(axis)


def softmax_backward(grad, y, axis):
    grad, y = np.asarray(grad, np.float64), np.asarray(y, np.float64)
    return y * (grad - (grad * y).sum(axis, keepdims=True))


def log_softmax_backward(grad, y, axis):
    grad, y = np.asarray(grad, np.float64), np.asarray(y, np.float64)
    return grad - np.exp(y) * grad.sum(axis, keepdims=True)


def ulps(result, truth, dtype, scale=0.0):
    """The worst error in units in the last place of max(|truth|, scale)."""
    result, truth = np.asarray(result, np.float64), np.asarray(truth, np.float64)
    size = np.maximum(np.maximum(np.abs(truth), scale), np.finfo(dtype).tiny).astype(dtype)
    return float(np.max(np.abs(result - truth) / np.spacing(size).astype(np.float64), initial=0.0))

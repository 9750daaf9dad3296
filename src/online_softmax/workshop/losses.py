"""Minus the log of a softmax, computed the naive way and from the state, at growing logits; and its gradient."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..state import State

SHAPE = np.array([1.0, 0.6, 0.3, 0.0, -0.4, -1.0])
"""The six logits, before they are multiplied by the largest one wanted."""


class Loss(NamedTuple):
    """The loss of one row, both ways."""

    largest: float
    naive: float
    """-log(exp(x_t) / sum exp(x)), every step rounded to the dtype."""
    stable: float
    """m + log s - x_t."""


class Gradient(NamedTuple):
    """The softmax of one row, and the gradient of its loss."""

    probabilities: tuple[float, ...]
    gradient: tuple[float, ...]
    """The derivative of the loss with respect to each logit: probability minus one-hot."""


def losses(largest: float, target: int, dtype: str) -> Loss:
    """Both losses of the six logits scaled so that the first is `largest`."""
    x = (largest * SHAPE).astype(dtype)
    with np.errstate(all="ignore"):
        e = np.exp(x)
        naive = -np.log(e[target] / np.sum(e, dtype=x.dtype))
    return Loss(largest, float(naive), float(State.of(x).logsumexp()) - float(x[target]))


def gradient(largest: float, target: int, dtype: str) -> Gradient:
    """Probabilities and gradient of the same six logits."""
    x = (largest * SHAPE).astype(dtype)
    probabilities = np.asarray(State.of(x).softmax(x))
    one_hot = np.eye(SHAPE.size, dtype=probabilities.dtype)[target]
    return Gradient(tuple(probabilities.tolist()), tuple((probabilities - one_hot).tolist()))


def growing(target: int, dtype: str) -> list[Loss]:
    """Both losses at logits that grow from 1 to 1000."""
    return [losses(float(largest), target, dtype) for largest in np.geomspace(1, 1000, 61)]

"""Every rung against float64: on the rows that are timed, and on a few with everything that can go wrong."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import array_api_compat
import numpy as np

from .rung import Answer, Arrays

# Relative to the probability: two roundings to the dtype and the error of a sum; below the floor, subnormal numbers.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 1.5e-3, "bfloat16": 1e-2}
FLOOR = {"float64": 3e-308, "float32": 2e-38, "float16": 1.2e-7, "bfloat16": 2e-38}
_ELEMENTS_AT_ONCE = 1 << 20


class Truth(NamedTuple):
    """Probabilities and losses from float64, the probabilities kept in the dtype that is computed with."""

    probabilities: Any
    loss: Any
    maximum: Any


def truth(arrays: Arrays) -> Truth:
    """The right answers for these logits and targets."""
    xp = array_api_compat.array_namespace(arrays.logits)
    rows, columns = arrays.logits.shape
    p = xp.empty((rows, columns), dtype=arrays.loss.dtype, device=array_api_compat.device(arrays.logits))
    losses, maxima = [], []
    step = max(1, _ELEMENTS_AT_ONCE // columns)
    with np.errstate(all="ignore"):
        for begin in range(0, rows, step):
            part = slice(begin, begin + step)
            x = xp.astype(arrays.logits[part], xp.float64)
            m = xp.max(x, axis=-1)
            e = xp.exp(x - m[:, None])
            s = xp.sum(e, axis=-1)
            x_target = xp.take_along_axis(x, arrays.target[part][:, None], axis=-1)[:, 0]
            p[part] = xp.astype(e / s[:, None], p.dtype)
            losses.append(xp.log(s) - (x_target - m))
            maxima.append(m)
    return Truth(p, xp.concat(losses), xp.concat(maxima))


def error(arrays: Arrays, answer: Answer, right: Truth, dtype: str) -> float:
    """The largest error relative to what the dtype allows: 1 is the limit, infinity a NaN or infinity out of place.

    Overwrites the gradient at the targets, once it has been compared.
    """
    xp = array_api_compat.array_namespace(arrays.logits)
    worst = 0.0
    with np.errstate(all="ignore"):
        if answer.loss is not None:
            size = xp.abs(right.loss) + xp.abs(right.maximum) + 1
            loss, wanted = xp.astype(xp.asarray(answer.loss), xp.float64), right.loss
            if loss.ndim == 0:
                loss, wanted, size = loss[None], xp.sum(wanted)[None], xp.sum(size)[None]
            worst = _worst(xp, loss, wanted, TOLERANCE[dtype] * size)
            # The gradient is the probability minus 1 at the target, and the probability elsewhere.
            at = xp.arange(len(arrays.target), device=array_api_compat.device(arrays.target)), arrays.target
            p = right.probabilities[at]
            got = xp.astype(answer.result[at], p.dtype)
            worst = max(worst, _worst(xp, got, p - 1, TOLERANCE[dtype] * (1 + p)))
            answer.result[at] = xp.astype(p, answer.result.dtype)
        got, wanted = xp.reshape(answer.result, (-1,)), xp.reshape(right.probabilities, (-1,))
        for begin in range(0, got.shape[0], _ELEMENTS_AT_ONCE):
            part = slice(begin, begin + _ELEMENTS_AT_ONCE)
            limit = TOLERANCE[dtype] * wanted[part] + FLOOR[dtype]
            worst = max(worst, _worst(xp, xp.astype(got[part], wanted.dtype, copy=False), wanted[part], limit))
    return worst


def _worst(xp: Any, got: Any, wanted: Any, limit: Any) -> float:
    """The largest abs(got - wanted) / limit; NaN and infinities must stand where they are wanted, and only there."""
    worst = float(xp.max(xp.abs(got - wanted) / limit))
    if math.isfinite(worst):
        return worst
    same = (got == wanted) | (xp.isnan(got) & xp.isnan(wanted))
    off = xp.where(same, 0.0, xp.abs(got - wanted) / limit)
    return float(xp.max(xp.where(xp.isnan(off), xp.inf, off)))


def planted_rows(columns: int = 1037) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a length that is no multiple of anything, with outliers, infinities and NaN; and a target for each."""
    rows = 3 * np.random.default_rng(17).standard_normal((9, columns))
    rows[1, ::3] = -np.inf
    rows[2, : columns - 1] = -np.inf  # only the last element counts
    rows[3, :] = -np.inf
    rows[4, columns // 2] = np.nan
    rows[5, columns // 3] = np.inf
    rows[6, -1] = 30000.0
    rows[7] += -20000.0
    rows[8, :] = 7.0
    return rows, np.full(9, columns - 1)

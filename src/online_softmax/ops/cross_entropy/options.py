"""What cross-entropy is asked for, and what its forward gives: the same for every implementation."""

from __future__ import annotations

from typing import Any, NamedTuple


class Options(NamedTuple):
    """Options of cross-entropy that are the same for every row."""

    ignore_index: int = -100
    reduction: str = "mean"  # "none" | "mean" | "sum"
    label_smoothing: float = 0.0
    scale: float = 1.0
    softcap: float | None = None
    z_loss: float = 0.0


class Forward(NamedTuple):
    """Results of forward, in the compute dtype (float32; float64 for float64 logits) unless said."""

    loss: Any  # (M,) for "none", else 0-d; z-loss included
    lse: Any  # (M,) after scale and softcap, of ignored rows too
    lse_low: Any  # (M,) what rounding lse lost: (m + log s) - lse; 0 where lse is not finite
    divisors: Any  # (2,) what "mean" divides the class term and the z term by; ones for "sum" and "none"
    z_loss: Any  # (M,) z_loss * lse**2 of kept rows, 0 for ignored ones    these three only with aux=True, else None
    predicted: Any  # (M,) int64, first index of the maximum
    entropy: Any  # (M,) nats
    gradient: Any  # (M, C) in the logits' dtype; None if not asked for

"""What cross-entropy takes besides its arrays, and what its forward pass gives back."""

from __future__ import annotations

from typing import Any, NamedTuple


class Options(NamedTuple):
    """The settings of one call; the public function documents and checks them."""

    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0
    scale: float = 1.0
    softcap: float | None = None
    z_loss: float = 0.0


class Forward(NamedTuple):
    """One forward pass over (M, C) logits; "compute dtype" is float32, float64 for float64 logits."""

    #: (M,) for "none", else 0-d, compute dtype; z-loss included.
    loss: Any
    #: (M,) compute dtype, after scale and softcap; of ignored rows too.
    lse: Any
    #: (2,) compute dtype: what "mean" divides the class term and the z term by; ones otherwise.
    divisors: Any
    #: (M,) ``z_loss * lse**2`` of kept rows, 0 for ignored ones.  This and the next two with ``aux=True`` only.
    z_loss: Any = None
    #: (M,) int64, first index of the maximum; of the first NaN in a row that has one.
    predicted: Any = None
    #: (M,) compute dtype, in nats.
    entropy: Any = None
    #: (M, C) in the dtype of the logits, or None if not asked for.
    gradient: Any = None

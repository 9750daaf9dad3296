"""The options of cross-entropy that reach an implementation, and what an implementation gives back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..._arrays import Array

HEAD_BYTES = 16
"""In front of the rows of a packed array; the divisors are the first two numbers there."""


class Options(NamedTuple):
    """Everything about the loss that is no array; checked by the public layer."""

    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0
    scale: float = 1.0
    softcap: float | None = None
    z_loss: float = 0.0


class Saved(NamedTuple):
    """What backward needs of forward besides its arguments; spread out where an implementation's backward is called."""

    lse: Array
    lse_low: Array
    divisors: Array

    @classmethod
    def kept(cls, arrays: Sequence[Array]) -> Saved:
        """From what `to_keep` of a Forward or Packed has given."""
        return cls(*arrays) if len(arrays) == 3 else cls.unpacked(arrays[0])

    @classmethod
    def unpacked(cls, packed: Array) -> Saved:
        """From the one array of a `Packed`."""
        head = HEAD_BYTES // packed.dtype.itemsize
        rows = (packed.shape[0] - head) // 3
        return cls(packed[head + rows : head + 2 * rows], packed[head + 2 * rows :], packed[:2])

    def rows(self, which: Any) -> Saved:
        """Of some of the rows; what "mean" divides by stays that of all."""
        return Saved(self.lse[which], self.lse_low[which], self.divisors)


class Forward(NamedTuple):
    """What `forward` of an implementation returns for M rows; arrays in the compute dtype (fp32, fp64 for fp64)."""

    loss: Array
    """(M,) for "none", else 0-d; z-loss included."""
    lse: Array
    """(M,) log-sum-exp after scale and softcap, of ignored rows too."""
    lse_low: Array
    """(M,) what rounding took from lse, so that exp((x − lse) − lse_low) is right far from zero."""
    divisors: Array
    """(2,) what "mean" divides the class term and the z term by."""
    z_loss: Array | None
    """(M,) z · lse² of kept rows; this and the next two only when aux is asked for."""
    predicted: Array | None
    """(M,) int64, the first maximum."""
    entropy: Array | None
    """(M,) nats."""
    gradient: Any
    """(M, C) in the logits' dtype, or None."""

    @property
    def saved(self) -> Saved:
        """The part for backward."""
        return Saved(self.lse, self.lse_low, self.divisors)

    @property
    def to_keep(self) -> tuple[Array, ...]:
        """The same in as few arrays as there are."""
        return self.saved


class Packed:
    """A Forward of a mean or sum without aux, with what backward may need in one array: a small call is done sooner
    than three views of it are made, and most backwards want none of them."""

    __slots__ = ("gradient", "loss", "to_keep")

    z_loss = predicted = entropy = None

    def __init__(self, loss: Array, packed: Array, gradient: Any) -> None:
        self.loss, self.gradient = loss, gradient
        self.to_keep = (packed,)
        """HEAD_BYTES with the divisors in front, then the rows' losses, lse and lse_low."""

    def __iter__(self) -> Iterator[Any]:
        """The fields of a Forward."""
        return iter((self.loss, *self.saved, None, None, None, self.gradient))

    @property
    def saved(self) -> Saved:
        """The part for backward."""
        return Saved.unpacked(*self.to_keep)

    @property
    def lse(self) -> Array:
        """As in Forward."""
        return self.saved.lse

    @property
    def lse_low(self) -> Array:
        """As in Forward."""
        return self.saved.lse_low

    @property
    def divisors(self) -> Array:
        """As in Forward."""
        return self.saved.divisors


class Aux(NamedTuple):
    """Per-row quantities that `return_aux=True` adds to the loss; each has the shape of the unreduced loss.

    lse is differentiable; the others are detached from autograd.
    """

    lse: Array
    """log Σ exp of the logits after scale and softcap, nats."""
    z_loss: Array
    """z_loss · lse², 0 for ignored rows."""
    predicted: Array
    """int64, index of the first largest logit."""
    entropy: Array
    """Entropy of the predicted distribution, nats."""

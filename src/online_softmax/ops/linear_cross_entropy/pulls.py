"""What the second sweep over the vocabulary asks of each chunk, from the gradients that come in."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..._arrays import Array, namespace
from ..cross_entropy.gradient import incoming
from ..cross_entropy.options import Saved
from .kept import spoiling
from .problem import Problem
from .shard import Targets


class Pulls(NamedTuple):
    """Arguments of cross-entropy's `backward` for every chunk."""

    lse: Array
    class_share: Array
    """(M,) or (1,) the incoming gradient over the divisor of the class term."""
    pull: Array | None
    """(M,) what multiplies p, for `OwnClass`."""
    by_lse: Array
    """(chunks, M) the part of it that does not belong to the mass a chunk is shown, and comes in by way of lse."""


def pulls(problem: Problem, targets: Targets, saved: Saved, grad_loss: Array, grad_lse: Array | None) -> Pulls:
    """For any incoming gradients of the loss and of lse."""
    options, (lse, _, divisors) = problem.options, saved
    xp: Any = namespace(problem.input)
    class_share, z_share = incoming(xp, grad_loss, divisors, targets.ignored)
    pull = class_share if targets.plain else class_share * targets.mass
    if options.z_loss:
        pull = xp.where(targets.ignored, 0.0, pull + 2.0 * options.z_loss * lse * z_share)
    pull = xp.where(targets.bad, xp.nan, pull)
    if grad_lse is not None:
        pull = pull + grad_lse
    # With a log-sum-exp this large every p is 0: rows that count for nothing stay 0, whatever they hold.
    lse = xp.where(spoiling(problem, slice(None), grad_lse), xp.finfo(targets.compute).max, lse)
    return Pulls(lse, class_share, pull, pull - class_share * targets.masses)

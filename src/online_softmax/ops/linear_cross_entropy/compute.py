"""The loss and its gradients outside autograd: which walk is taken, and which rows."""

from __future__ import annotations

from typing import Any

from ..._arrays import Array
from ..cross_entropy.options import Forward, Saved
from . import rows, vocabulary
from .kept import spread, without_ignored_rows
from .last_chunk import LastChunk
from .problem import LinearCrossEntropyGrads, Problem, Wanted


def forward(problem: Problem, aux: bool, wanted: Wanted | None, early: bool, last: LastChunk | None = None) -> Forward:
    """The loss and per-row results; with `early`, `gradient` holds the gradients for an incoming gradient of 1.

    `wanted` says which gradients are made now, or later by `backward`: the chunks depend on it.  `last`, the same for
    both, holds logits that backward need not compute again.
    """
    if last is not None:
        last.make_room()
    count = problem.input.shape[0]
    kept, index = without_ignored_rows(problem, aux)
    kept, walk = _walk(kept)
    result: Forward = walk.forward(kept, aux, wanted, early, last)
    if index is None:
        return result
    loss = spread(result.loss, index, count) if problem.options.reduction == "none" else result.loss
    gradient = result.gradient and result.gradient._replace(input=spread(result.gradient.input, index, count))
    return result._replace(
        loss=loss,
        lse=spread(result.lse, index, count),
        lse_low=spread(result.lse_low, index, count),
        gradient=gradient,
    )


def backward(
    problem: Problem,
    aux: bool,
    saved: Saved,
    grad_loss: Array,
    grad_lse: Array | None,
    wanted: Wanted,
    last: LastChunk | None = None,
) -> LinearCrossEntropyGrads:
    """The gradients for any incoming gradients of the loss and of lse; `aux` as it was in forward."""
    kept, index = without_ignored_rows(problem, aux)
    if index is not None:
        saved = saved.rows(index)
        grad_loss = grad_loss if grad_loss.ndim == 0 else grad_loss[index]
    kept, walk = _walk(kept)
    gradients: LinearCrossEntropyGrads = walk.backward(kept, saved, grad_loss, grad_lse, wanted, last)
    return gradients._replace(input=spread(gradients.input, index, problem.input.shape[0]))


def _walk(problem: Problem) -> tuple[Problem, Any]:
    """Over chunks of rows or of the vocabulary; all rows at once where one chunk has the whole vocabulary."""
    if problem.memory != "least":
        return problem, rows
    if len(vocabulary.chunks_of(problem)) > 1:
        return problem, vocabulary
    return problem._replace(chunk_rows=max(1, problem.input.shape[0])), rows

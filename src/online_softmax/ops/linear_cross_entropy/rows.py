"""memory="fast", and "least" where plan.py says so: rows in chunks.

A chunk's logits are one product, and become its gradient in place; two products more give the gradients of input and
weight.  Three products in all where the gradient is made with the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._arrays import Array, namespace
from ..cross_entropy.options import Forward, Saved
from . import plan, products
from .divisors import batch_divisors
from .gradients import RowGradients
from .kept import without_ignored
from .last_chunk import LastChunk
from .problem import LinearCrossEntropyGrads, Problem, Wanted


def forward(problem: Problem, aux: bool, wanted: Wanted | None, early: bool, last: LastChunk | None = None) -> Forward:
    """The loss; with `early`, gradients for an incoming gradient of 1 (of every row, for "none").

    `last` keeps the logits of a batch that is one chunk for a later `backward`.
    """
    x, _, _, target, weight, items, options, module, *_ = problem
    chunks = _chunks(problem, wanted)
    several = len(chunks) > 1
    buffer = _buffer(problem, chunks)
    logits = _logits(problem, chunks[0], buffer)  # under way while the rest is seen to
    divisors = None
    if several and options.reduction == "mean":
        # A chunk cannot count the batch: what "mean" divides by is found beforehand.
        divisors = batch_divisors(problem)
        weight, items = _one_divisor(weight, divisors, options.z_loss)
    gradients = RowGradients(problem, wanted, len(chunks)) if early and wanted else None
    parts = []
    for rows in chunks:
        if rows.start:
            logits = _logits(problem, rows, buffer)
        into = logits if gradients is not None and options.reduction != "none" else None
        part = module.forward(logits, target[rows], weight, items, options, aux=aux, gradient=into)
        if gradients is not None:
            if into is None:
                ones = namespace(x).ones_like(part.lse)
                rest = options, ones, None, logits
                module.backward(logits, target[rows], weight, *part.saved, *rest)
            gradients.take(rows, logits, without_ignored(problem, rows))
        parts.append(Forward(*part)._replace(gradient=None))
    if last is not None and gradients is None and not several:
        last.keep(buffer)
    return _joined(parts, divisors, options.reduction)._replace(gradient=gradients and gradients.finish())


def backward(
    problem: Problem,
    saved: Saved,
    grad_loss: Array,
    grad_lse: Array | None,
    wanted: Wanted,
    last: LastChunk | None = None,
) -> LinearCrossEntropyGrads:
    """The gradients for any incoming gradients of the loss and of lse, from logits kept or computed again."""
    chunks = _chunks(problem, wanted)
    kept = None if last is None else last.take()
    buffer = _buffer(problem, chunks) if kept is None else kept
    gradients = RowGradients(problem, wanted, len(chunks))
    for rows in chunks:
        logits = _logits(problem, rows, buffer) if kept is None else kept
        problem.module.backward(
            logits,
            problem.target[rows],
            problem.weight,
            *saved.rows(rows),
            problem.options,
            grad_loss if grad_loss.ndim == 0 else grad_loss[rows],
            None if grad_lse is None else grad_lse[rows],
            logits,
        )
        gradients.take(rows, logits, without_ignored(problem, rows, grad_lse))
    return gradients.finish()


def _chunks(problem: Problem, wanted: Wanted | None) -> Sequence[slice]:
    """Slices of rows; the same ones in forward and backward."""
    count, hidden = problem.input.shape
    if problem.chunk_rows is not None:
        each = problem.chunk_rows
        return [slice(start, min(start + each, count)) for start in range(0, max(count, 1), each)]
    classes, itemsize = problem.linear_weight.shape[0], problem.input.dtype.itemsize
    if problem.memory == plan.BY_ROWS:
        return list(plan.even(count, plan.least_rows(count, hidden, classes, itemsize), 128))
    device = "cpu" if not hasattr(problem.input, "is_cuda") else problem.input.device.type
    sums = wanted is not None and wanted.linear_weight and products.narrow(problem.dtypes[1])
    memory = products.device_bytes(problem.input)
    return plan.row_chunks(count, hidden, classes, itemsize, device, sums, memory)


def _buffer(problem: Problem, chunks: Sequence[slice]) -> Array:
    """Memory for the logits of any chunk; the first is the longest."""
    return products.buffer(problem.input, chunks[0].stop - chunks[0].start, problem.linear_weight.shape[0])


def _logits(problem: Problem, rows: slice, buffer: Array) -> Array:
    out = buffer[: rows.stop - rows.start]
    return products.logits(problem.input[rows], problem.linear_weight, problem.linear_bias, out)


def _one_divisor(weight: Array | None, divisors: Array, z_loss: float) -> tuple[Array | None, Any]:
    """Class weights and the one number that both terms of the loss may be divided by.

    Where the two divisors D and K differ, weights times K / D let the class term be divided by K too.
    """
    by_class, by_row = divisors[0], divisors[1]
    if weight is None or not z_loss:
        return weight, by_class
    return weight * (by_row / by_class), by_row


def _joined(parts: list[Forward], divisors: Array | None, reduction: str) -> Forward:
    """What the chunks gave, as one: rows after one another, losses added up."""
    if len(parts) == 1:
        return parts[0]
    xp = namespace(parts[0].lse)
    loss, *rows = (None if part[0] is None else list(part) for part in zip(*parts, strict=True))
    lse, lse_low, _, *aux, _ = [None if part is None else xp.concat(part) for part in rows]
    total = xp.concat(loss) if reduction == "none" else xp.sum(xp.stack(loss), axis=0)
    if divisors is None:
        divisors = parts[0].divisors
    z_loss, predicted, entropy = aux
    return Forward(total, lse, lse_low, divisors, z_loss, predicted, entropy, None)

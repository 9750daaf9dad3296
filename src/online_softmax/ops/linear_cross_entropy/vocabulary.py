"""memory="least": the vocabulary in chunks, twice.  Four products less one chunk's, and nothing kept but one chunk of
logits.

The first sweep summarises each row over each chunk of classes and merges these states; the second computes the chunk's
logits again and turns them into their gradient with the merged log-sum-exp.  It begins with the chunk that the first
one ended with, whose logits are still there.  A chunk holds all rows, so that its part of the weight's gradient is one
product, rounded once.  Where one chunk is the whole vocabulary, rows.py takes all rows at once instead.
"""

from __future__ import annotations

from typing import Any

from ..._arrays import Array, compute_dtype, device, is_integer, namespace
from ..._dispatch import device_type
from ..cross_entropy.options import Forward, Saved
from . import plan, products
from .gradients import rounded
from .kept import without_ignored
from .last_chunk import LastChunk
from .merged import Part, merged
from .problem import LinearCrossEntropyGrads, Problem, Wanted
from .pulls import pulls
from .shard import Targets

_ALL = slice(None)


def forward(problem: Problem, aux: bool, wanted: Wanted | None, early: bool, last: LastChunk | None = None) -> Forward:
    """The loss by the first sweep; with `early`, gradients for an incoming gradient of 1 by the second.

    `last` keeps the last chunk's logits for a later `backward`, except with aux, which wants those of ignored rows too.
    """
    options, module = problem.options, problem.module
    x = problem.input if aux else without_ignored(problem, _ALL)
    xp = namespace(x)
    chunks = chunks_of(problem)
    buffer = _buffer(problem, chunks)
    order = _first_order(len(chunks))
    logits = _logits(problem, x, chunks[order[0]], buffer)  # under way while the targets are seen to
    targets: Any = None if aux else _fused(problem, chunks)
    targets = Targets(problem, chunks) if targets is None else targets
    parts: list[Any] = [None] * len(chunks)
    for index in order:
        classes, shard = chunks[index], targets.each[index]
        if index != order[0]:
            logits = _logits(problem, x, classes, buffer)
        if targets.own is not None:
            targets.own.find(logits, classes)
        result = module.forward(logits, shard.target, shard.weight, None, shard.options, aux=aux)
        best = xp.take_along_axis(logits, result.predicted[:, None], axis=1)[:, 0] if aux else None
        parts[index] = Part(shard, classes.start, best, result)
    whole = merged(parts, targets, aux) if isinstance(targets, Targets) else targets.merged(parts)
    if early and wanted is not None:
        last = LastChunk()
    if last is not None and not aux:
        last.keep(buffer)
    if not early or wanted is None:
        return whole
    del x  # a copy, if rows may be ignored; the second sweep makes its own
    shape = whole.lse.shape if options.reduction == "none" else ()
    one = xp.ones(shape, dtype=whole.lse.dtype, device=device(problem.input))
    gradient = backward(problem, whole.saved, one, None, wanted, last)
    return whole._replace(gradient=gradient)


def backward(
    problem: Problem,
    saved: Saved,
    grad_loss: Array,
    grad_lse: Array | None,
    wanted: Wanted,
    last: LastChunk | None = None,
) -> LinearCrossEntropyGrads:
    """The second sweep: gradients for any incoming gradients of the loss and of lse."""
    weight, lse_low = problem.linear_weight, saved.lse_low
    xp = namespace(problem.input)
    compute = compute_dtype(xp, problem.input.dtype)
    chunks = chunks_of(problem)
    kept = None if last is None else last.take()
    buffer = _buffer(problem, chunks) if kept is None else kept
    targets: Any = _fused(problem, chunks)
    if targets is None:
        targets = Targets(problem, chunks)
        lse, class_share, pull, by_lse = pulls(problem, targets, saved, grad_loss, grad_lse)
    else:
        lse, class_share, pull, by_lse = targets.pulls(saved, grad_loss, grad_lse)
    ones = xp.ones((2,), dtype=compute, device=device(problem.input))
    dx = InputGradient(problem, wanted)
    x = without_ignored(problem, _ALL, grad_lse, dx.unused)
    dw = products.empty(x, weight.shape, problem.dtypes[1]) if wanted.linear_weight else None
    db: list[Array] = [None] * len(chunks)
    order = _second_order(len(chunks))
    for index in order:
        classes, shard, begins = chunks[index], targets.each[index], index == order[0]
        gradient = _part(buffer, classes)
        if not begins or kept is None:
            gradient = _logits(problem, x, classes, buffer)
        if targets.own is not None:
            targets.own.find(gradient, classes)
        given = shard.target, shard.weight, lse, lse_low, ones, shard.options
        problem.module.backward(gradient, *given, shard.shared(class_share), by_lse[index], gradient)
        if targets.own is not None:
            targets.own.write(gradient, classes, lse, lse_low, pull, class_share)
        if dw is not None:
            products.into(gradient.T, x, dw[classes])
        dx.add(gradient, weight[classes], begins)
        if wanted.linear_bias:
            db[index] = products.column_sums(gradient, compute)
    return rounded(problem, dx.finish(), dw, xp.concat(db) if wanted.linear_bias else None)


def _fused(problem: Problem, chunks: list[slice]) -> Any:
    """The targets whose work is a launch at a time, where the GPU's kernels are used and know such ones; else None."""
    plain = problem.weight is None and not problem.options.label_smoothing and is_integer(problem.target.dtype)
    if not plain or not problem.module.__name__.endswith(".cuda") or problem.target.shape[0] == 0:
        return None
    from .cuda_shards import CudaTargets

    return CudaTargets(problem, chunks)


class InputGradient:
    """The gradient of the input, summed over chunks of classes in fp32 and rounded once."""

    def __init__(self, problem: Problem, wanted: Wanted) -> None:
        x, dtype = problem.input, problem.dtypes[0]
        self.sum = self.result = None
        if wanted.input:
            self.result = self.sum = products.empty(x, x.shape, dtype)
            if products.narrow(dtype):
                self.sum = products.empty(x, x.shape, compute_dtype(namespace(x), x.dtype))

    @property
    def unused(self) -> Array | None:
        """The result's memory, if nothing is written to it before `finish`."""
        return None if self.sum is self.result else self.result

    def add(self, gradient: Array, weight: Array, first: bool) -> None:
        """A chunk's product."""
        if self.sum is not None:
            products.add(gradient, weight, self.sum, fresh=first)

    def finish(self) -> Array | None:
        """The sum in the result's dtype."""
        if self.sum is not self.result:
            products.copy(self.sum, self.result)
        return self.result


def _first_order(chunks: int) -> list[int]:
    """The last chunk, which may be short, comes first, so that the sweep ends with a full one."""
    return [chunks - 1, *range(chunks - 1)]


def _second_order(chunks: int) -> list[int]:
    """Begins where the first sweep ended."""
    first = _first_order(chunks)
    return [first[-1], *first[:-1]]


def chunks_of(problem: Problem) -> list[slice]:
    """Slices of classes; the first is the longest."""
    (rows, hidden), classes = problem.input.shape, problem.linear_weight.shape[0]
    return plan.class_chunks(rows, hidden, classes, problem.input.dtype.itemsize, device_type(problem.input))


def _buffer(problem: Problem, chunks: list[slice]) -> Array:
    """Memory for the logits of any chunk."""
    return products.buffer(problem.input, problem.input.shape[0], chunks[0].stop)


def _part(buffer: Array, classes: slice) -> Array:
    return buffer[:, : classes.stop - classes.start]


def _logits(problem: Problem, x: Array, classes: slice, buffer: Array) -> Array:
    bias = None if problem.linear_bias is None else problem.linear_bias[classes]
    return products.logits(x, problem.linear_weight[classes], bias, _part(buffer, classes))

"""memory="least": the vocabulary in chunks, twice.  Four products, and nothing kept but one chunk of logits.

The first sweep summarises each row over each chunk of classes and merges these states; the second computes the chunk's
logits again and turns them into their gradient with the merged log-sum-exp.  A chunk holds all rows, so that its part
of the weight's gradient is one product, rounded once.
"""

from __future__ import annotations

from ..._arrays import Array, compute_dtype, device, namespace
from ..._dispatch import device_type
from ..cross_entropy.gradient import incoming
from ..cross_entropy.options import Forward, Saved
from ..cross_entropy.terms import divide_by
from . import plan, products
from .gradients import rounded
from .kept import spoiling, without_ignored
from .merged import Part, merged
from .problem import LinearCrossEntropyGrads, Problem, Wanted
from .shard import Targets

_ALL = slice(None)


def forward(problem: Problem, aux: bool, wanted: Wanted | None, early: bool) -> Forward:
    """The loss by the first sweep; with `early`, gradients for an incoming gradient of 1 by the second."""
    _, weight, _, target, class_weight, items, options, module, *_ = problem
    xp = namespace(problem.input)
    compute = compute_dtype(xp, problem.input.dtype)
    targets = Targets(problem)
    x = problem.input if aux else without_ignored(problem, _ALL)
    chunks, buffer = _chunks(problem)
    parts = []
    for classes in chunks:
        logits = _logits(problem, x, classes, buffer)
        if targets.own is not None:
            targets.own.find(logits, classes)
        shard = targets.shard(classes)
        result = module.forward(logits, shard.target, shard.weight, None, shard.options, aux=aux)
        best = xp.take_along_axis(logits, result.predicted[:, None], axis=1)[:, 0] if aux else None
        parts.append(Part(shard, classes.start, best, result))
    divisors = divide_by(xp, target, class_weight, weight.shape[0], items, options, compute)
    whole = merged(xp, parts, targets, divisors, aux)
    if not early or wanted is None:
        return whole
    one = xp.ones(whole.lse.shape if options.reduction == "none" else (), dtype=compute, device=device(x))
    gradient = backward(problem, whole.saved, one, None, wanted)
    return whole._replace(gradient=gradient)


def backward(
    problem: Problem,
    saved: Saved,
    grad_loss: Array,
    grad_lse: Array | None,
    wanted: Wanted,
) -> LinearCrossEntropyGrads:
    """The second sweep: gradients for any incoming gradients of the loss and of lse."""
    weight, options = problem.linear_weight, problem.options
    lse, lse_low, divisors = saved
    xp = namespace(problem.input)
    compute = compute_dtype(xp, problem.input.dtype)
    targets = Targets(problem)
    x = without_ignored(problem, _ALL, grad_lse)
    class_share, z_share = incoming(xp, grad_loss, divisors)
    class_share = xp.where(targets.ignored, 0.0, class_share)
    pull = class_share * targets.mass
    if options.z_loss:
        pull = xp.where(targets.ignored, 0.0, pull + 2.0 * options.z_loss * lse * z_share)
    pull = xp.where(targets.bad, xp.nan, pull)
    if grad_lse is not None:
        pull = pull + grad_lse
    # With a log-sum-exp this large every p is 0: rows that count for nothing stay 0, whatever they hold.
    lse = xp.where(spoiling(problem, _ALL, grad_lse), xp.finfo(compute).max, lse)
    ones = xp.ones((2,), dtype=compute, device=device(x))
    chunks, buffer = _chunks(problem)
    of_input, of_weight, _ = problem.dtypes
    dx = products.empty(x, x.shape, compute if products.narrow(of_input) else of_input) if wanted.input else None
    dw = products.empty(x, weight.shape, of_weight) if wanted.linear_weight else None
    db = []
    for classes in chunks:
        gradient = _logits(problem, x, classes, buffer)
        shard = targets.shard(classes)
        if targets.own is not None:
            targets.own.find(gradient, classes)
        # The kernel adds p times the mass that it is shown; what pulls towards all other mass comes in by way of lse.
        given = shard.target, shard.weight, lse, lse_low, ones, shard.options
        problem.module.backward(gradient, *given, class_share * shard.share, pull - class_share * shard.mass, gradient)
        if targets.own is not None:
            targets.own.write(gradient, classes, lse, lse_low, pull, class_share)
        if dx is not None:
            products.add(gradient, weight[classes], dx, fresh=classes.start == 0)
        if dw is not None:
            products.into(gradient.T, x, dw[classes])
        if wanted.linear_bias:
            db.append(products.column_sums(gradient, compute))
    return rounded(problem, dx, dw, xp.concat(db) if db else None)


def _chunks(problem: Problem) -> tuple[list[slice], Array]:
    """Slices of classes, and memory for the logits of any; the first is the longest."""
    rows, classes = problem.input.shape[0], problem.linear_weight.shape[0]
    where = device_type(problem.input)
    at_once = plan.classes_at_once(rows, problem.input.dtype.itemsize, where)
    chunks = list(plan.even(classes, at_once, 1 if where == "cpu" else 64))
    return chunks, products.buffer(problem.input, rows, chunks[0].stop)


def _logits(problem: Problem, x: Array, classes: slice, buffer: Array) -> Array:
    bias = None if problem.linear_bias is None else problem.linear_bias[classes]
    out = buffer[:, : classes.stop - classes.start]
    return products.logits(x, problem.linear_weight[classes], bias, out)

"""memory="least": the vocabulary in chunks, twice.  Four products, and nothing kept but one chunk of logits.

The first sweep summarises each row over each chunk of classes and merges these states; the second computes the chunk's
logits again and turns them into their gradient with the merged log-sum-exp.  A chunk holds all rows, so that its part
of the weight's gradient is one product, rounded once.
"""

from __future__ import annotations

from ..._arrays import Array, compute_dtype, device, namespace
from ..._dispatch import device_type
from ..cross_entropy.gradient import incoming
from ..cross_entropy.options import Forward
from ..cross_entropy.terms import divide_by
from . import plan, products
from .gradients import rounded
from .kept import without_ignored
from .merged import merged
from .problem import LinearCrossEntropyGrads, Problem, Wanted
from .shard import Targets

_ALL = slice(None)


def forward(problem: Problem, aux: bool, wanted: Wanted | None, early: bool) -> Forward:
    """The loss by the first sweep; with `early`, gradients for an incoming gradient of 1 by the second."""
    x, weight, bias, target, class_weight, items, options, module, *_ = problem
    xp = namespace(x)
    targets = Targets(problem)
    x = x if aux else without_ignored(problem, _ALL)
    chunks, buffer = _chunks(problem)
    parts = []
    for classes in chunks:
        width = classes.stop - classes.start
        logits = products.logits(x, weight[classes], None if bias is None else bias[classes], buffer[:, :width])
        shard = targets.shard(classes)
        seen = _with_dummy(buffer, width, shard.width)
        result = module.forward(seen, shard.target, shard.weight, None, shard.options, aux=aux)
        best = xp.take_along_axis(logits, result.predicted[:, None], axis=1)[:, 0] if aux else None
        parts.append((shard, classes.start, best, result))
    divisors = divide_by(xp, target, class_weight, weight.shape[0], items, options, compute_dtype(xp, x.dtype))
    whole = merged(xp, parts, targets, divisors, options, aux)
    if not early or wanted is None:
        return whole
    shape = whole.lse.shape if options.reduction == "none" else ()
    one = xp.ones(shape, dtype=whole.lse.dtype, device=device(x))
    gradient = backward(problem, whole.lse, whole.lse_low, divisors, one, None, wanted)
    return whole._replace(gradient=gradient)


def backward(
    problem: Problem,
    lse: Array,
    lse_low: Array,
    divisors: Array,
    grad_loss: Array,
    grad_lse: Array | None,
    wanted: Wanted,
) -> LinearCrossEntropyGrads:
    """The second sweep: gradients for any incoming gradients of the loss and of lse."""
    x, weight, bias, _, _, _, options, module, *_ = problem
    xp = namespace(x)
    compute = compute_dtype(xp, x.dtype)
    targets = Targets(problem)
    x = without_ignored(problem, _ALL) if grad_lse is None else x
    class_share, z_share = incoming(xp, grad_loss, divisors)
    class_share = xp.broadcast_to(class_share, lse.shape)
    pull = class_share * targets.mass
    if options.z_loss:
        pull = pull + 2.0 * options.z_loss * lse * z_share
    pull = xp.where(targets.ignored, 0.0, pull)
    if grad_lse is not None:
        pull = pull + grad_lse
    ones = xp.ones((2,), dtype=compute, device=device(x))
    of_input, of_weight, _ = problem.dtypes
    chunks, buffer = _chunks(problem)
    wide = compute if products.narrow(of_input) else of_input
    dx = products.empty(x, x.shape, wide) if wanted.input else None
    dw = products.empty(x, weight.shape, of_weight) if wanted.linear_weight else None
    db = []
    for classes in chunks:
        width = classes.stop - classes.start
        products.logits(x, weight[classes], None if bias is None else bias[classes], buffer[:, :width])
        shard = targets.shard(classes)
        seen = _with_dummy(buffer, width, shard.width)
        # The kernel adds p times the mass of its own classes; what pulls towards the others comes in by way of lse.
        share = class_share * shard.share
        elsewhere = xp.where(targets.ignored, pull, pull - class_share * shard.mass)
        given = shard.target, shard.weight, lse, lse_low, ones, shard.options, share, elsewhere
        module.backward(seen, *given, seen)
        gradient = buffer[:, :width]
        if dx is not None:
            products.add(gradient, weight[classes], dx, fresh=classes.start == 0)
        if dw is not None:
            products.into(gradient.T, x, dw[classes])
        if wanted.linear_bias:
            db.append(products.column_sums(gradient, compute))
    return rounded(problem, dx, dw, xp.concat(db) if db else None)


def _chunks(problem: Problem) -> tuple[list[slice], Array]:
    """Slices of classes, and memory for the logits of any, with one column more."""
    rows, classes = problem.input.shape[0], problem.linear_weight.shape[0]
    at_once = plan.classes_at_once(rows, problem.input.dtype.itemsize, device_type(problem.input))
    chunks = list(plan.even(classes, at_once, 1 if device_type(problem.input) == "cpu" else 64))
    return chunks, products.buffer(problem.input, rows, chunks[0].stop + 1)


def _with_dummy(buffer: Array, width: int, seen: int) -> Array:
    """The chunk's logits, and the column of −inf after them where targets of other chunks point."""
    if seen > width:
        buffer[:, width] = float("-inf")
    return buffer[:, :seen]

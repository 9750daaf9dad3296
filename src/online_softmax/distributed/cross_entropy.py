"""Cross-entropy of logits whose classes are sharded over processes: one collective forward, none backward.

Forward reads the local logits once, for each row's (lse, low, target logit) and, when smoothing needs it, the spread of
the other classes; one all_gather of those makes the whole row's loss on every process.  Backward reads the logits and
writes their gradient, with nothing to ask the others.
Source: TransformerEngine's parallel cross-entropy for the single gather; Milakov & Gimelshein 2018 for the states.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._arguments import answers_synonyms, flag
from .._arrays import describe
from ..ops._torch import first_derivative_only
from ..ops.cross_entropy.arguments import Prepared, make_options, prepare
from ..ops.cross_entropy.options import Aux
from .checks import agreed, agreed_shard, described_options, described_tensor
from .group import Group, gather
from .rows import Whole
from .shards import from_dtensor, is_dtensor, replicated
from .terms import Terms, terms_of


@answers_synonyms
def cross_entropy(
    local_logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    vocab_start: int | None = None,
    vocab_size: int | None = None,
    group: Group = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    num_items: Any = None,
    scale: float = 1.0,
    softcap: float | None = None,
    z_loss: float = 0.0,
    return_aux: bool = False,
    debug: bool = False,
    impl: str = "auto",
) -> Any:
    """`online_softmax.cross_entropy` of logits whose classes are sharded over the processes of a group.

    Parameters
    ----------
    local_logits : Tensor (C_local,), (N, C_local) or (N, C_local, d1, …)
        This process's classes, from `vocab_start` on; or a DTensor sharded along the class axis, which knows the rest.
    target : int Tensor, (), (N,) or (N, d1, …)
        Class indices in the whole vocabulary, the same on every process. Probabilities are not supported, nor is
        inplace=, which `online_softmax.cross_entropy` has.
    weight : Tensor (vocab_size,), optional
        Factor of each class, of the whole vocabulary, the same on every process.
    vocab_start, vocab_size : int, optional
        Where this shard begins, and how many classes there are together. Neither, or vocab_size alone: equal shards in
        the order of the ranks. Shards may be uneven, and empty.
    group : ProcessGroup, optional
        All processes unless given.
    debug : bool
        Compare shapes, dtypes, options and shards over the processes first, so that a difference, or an argument that
        one process alone refuses, is an error on all of them and not a hang. All processes must pass the same. Values
        of target and weight are not compared.
    ignore_index, reduction, label_smoothing, num_items, scale, softcap, z_loss, return_aux, impl
        As in `online_softmax.cross_entropy`; smoothing, weights and means concern the whole vocabulary.

    Returns
    -------
    Tensor, or (Tensor, Aux) with return_aux
        The loss in nats, fp32 (fp64 for fp64 logits), the same on every process. Its gradient is that of the local
        logits, in memory of their size; second derivatives raise.

    Raises
    ------
    TypeError, ValueError
        If a shape, dtype or option does not fit. On the CPU also where a row's target is among the classes of more than
        one process, as when each holds all of them; on a GPU the row's loss is NaN. `debug` says where shards overlap.
    IndexError
        On the CPU, for a target outside the vocabulary that is not `ignore_index`; on a GPU the row's loss and
        gradient are NaN.
    RuntimeError
        If torch.distributed is not initialised, or, from torch, when a process dies or comes too late.

    Examples
    --------
    >>> loss = cross_entropy(local_logits, target, vocab_size=128256)   # doctest: +SKIP
    """
    debug = flag("debug", debug)
    axis = 0 if getattr(local_logits, "ndim", 2) == 1 else 1
    if is_dtensor(local_logits):
        local_logits, vocab_start, vocab_size, group = from_dtensor(
            "local_logits", local_logits, axis, vocab_start, vocab_size, group
        )

    shard = agreed_shard("local_logits", local_logits, axis, vocab_start, vocab_size, group, debug)

    def checked() -> _Checked:
        options = make_options(ignore_index, reduction, label_smoothing, scale, softcap, z_loss, local_logits)
        labels, weights = replicated("target", target), replicated("weight", weight)
        if isinstance(labels, Tensor) and labels.is_floating_point():
            raise TypeError(f"target has {describe(labels)}; wanted class indices of the whole vocabulary")
        aux = flag("return_aux", return_aux)
        ready = prepare(local_logits, labels, None, num_items, options)
        return _Checked(ready, terms_of(ready, weights, shard, impl, aux), aux)

    def facts(found: _Checked) -> dict[str, Any]:
        rest = [length for i, length in enumerate(local_logits.shape) if i != axis]
        return {
            "rows": rest,
            "dtype of local_logits": str(local_logits.dtype),
            "target": described_tensor(found.ready.target),
            **described_options(found.ready.options, num_items),
            "return_aux": found.aux,
            "weighted": weight is not None,
        }

    ready, terms, return_aux = agreed(checked, facts, group, debug)
    rows = _CrossEntropy.apply(ready.logits, terms, shard.group, return_aux)
    loss = ready.to_rows(rows[0]) if reduction == "none" else rows[0]
    if not return_aux:
        return loss
    return loss, Aux(*(ready.to_rows(row) for row in rows[1:]))


class _Checked(NamedTuple):
    ready: Prepared
    terms: Terms
    aux: bool


class _CrossEntropy(torch.autograd.Function):
    """Gives (loss, lse, z_loss, predicted, entropy), the last four only with aux."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, terms: Terms, group: Group, aux: bool) -> tuple[Tensor | None, ...]:
        rows = terms.losses(gather(terms.columns(logits.detach(), aux), group), aux)
        loss = terms.reduced(rows)
        ctx.save_for_backward(logits, *rows.whole, *terms.given)
        ctx.terms = terms
        ctx.set_materialize_grads(False)
        if not aux:
            return (loss,)
        extra = rows.z_loss, rows.predicted, rows.entropy
        ctx.mark_non_differentiable(*extra)
        return loss, rows.whole.lse, *extra

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, grad_loss: Tensor | None, grad_lse: Tensor | None = None, *_: Any) -> tuple[Any, ...]:
        if grad_loss is None and grad_lse is None:
            return (None,) * 4
        logits, lse, low, distance, *_ = ctx.saved_tensors
        whole = Whole(lse, low, distance)
        return ctx.terms.gradient(logits.detach(), whole, grad_loss, grad_lse, True), None, None, None

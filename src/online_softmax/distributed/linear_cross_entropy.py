"""Linear layer + cross-entropy with the head's weight sharded over the vocabulary, a chunk of rows at a time.

The logits of a chunk exist once, in the input's dtype; their gradient is written over them.  While the weight's
gradient of a chunk is computed, the sum over processes of its input gradient is on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .._arguments import answers_synonyms, flag
from .._arrays import describe
from ..ops._torch import autocast_dtype, first_derivative_only, without_autocast
from ..ops.cross_entropy.arguments import make_options, prepare
from ..ops.cross_entropy.options import Options
from ..ops.linear_cross_entropy.arguments import check_chunks
from .checks import agreed, agreed_shard, described_options, described_tensor
from .group import Group, gather
from .rows import Whole
from .shards import from_dtensor, is_dtensor, replicated
from .terms import Losses, Terms, terms_of

_CHUNK_ROWS = 4096


@answers_synonyms
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
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
    chunk_rows: int | None = None,
    debug: bool = False,
    impl: str = "auto",
) -> Tensor:
    """cross_entropy(input @ linear_weight.T + linear_bias, target) with linear_weight's rows sharded over a group.

    Parameters
    ----------
    input : Tensor (N, H)
        The same on every process; its gradient is summed over the group, so that it is wanted on all or none of them.
    linear_weight : Tensor (C_local, H)
        This process's classes, from `vocab_start` on; or a DTensor sharded along axis 0.
    linear_bias : Tensor (C_local,), optional
        Of this process's classes; or a DTensor sharded alike.
    target, weight, vocab_start, vocab_size, group, debug and the options of the loss
        As in `cross_entropy` of this module: class indices only. Of `online_softmax.linear_cross_entropy` there are
        no memory= and no return_aux= here.
    chunk_rows : int
        Rows whose logits exist at a time; 4096 unless given.

    Returns
    -------
    Tensor
        The loss in nats, the same on every process; one gather a chunk forward. For "mean" and "sum" the gradients are
        made in forward, for "none" the logits are computed again in backward; those that nobody asks for, of a frozen
        head or trunk, are not.

    Raises
    ------
    TypeError, ValueError, IndexError, RuntimeError
        As `cross_entropy` of this module.
    """
    debug = flag("debug", debug)
    if is_dtensor(linear_weight):
        linear_weight, vocab_start, vocab_size, group = from_dtensor(
            "linear_weight", linear_weight, 0, vocab_start, vocab_size, group
        )

    shard = agreed_shard("linear_weight", linear_weight, 0, vocab_start, vocab_size, group, debug)

    def checked() -> _Checked:
        options = make_options(ignore_index, reduction, label_smoothing, scale, softcap, z_loss, input)
        x, labels, weights = replicated("input", input), replicated("target", target), replicated("weight", weight)
        bias = from_dtensor("linear_bias", linear_bias, 0).tensor if is_dtensor(linear_bias) else linear_bias
        head = linear_weight
        cast = autocast_dtype(x.device.type) if isinstance(x, Tensor) else None
        if cast is not None:  # as torch's own layer: what is not fp64
            x, head, bias = (_cast(each, cast) for each in (x, head, bias))
        _check_layer(x, head, bias)
        if isinstance(labels, Tensor) and labels.is_floating_point():
            raise TypeError(f"target has {describe(labels)}; wanted class indices of the whole vocabulary")
        nothing = x.new_empty(0).expand(x.shape[0], 0)
        stand_in = nothing if shard.classes == 0 else x[:, :1].expand(-1, shard.classes)
        terms = terms_of(prepare(stand_in.detach(), labels, None, num_items, options), weights, shard, impl)
        chunk = check_chunks(chunk_rows, "fast") or _CHUNK_ROWS
        return _Checked(x, head, bias, labels, terms, options, chunk)

    def facts(found: _Checked) -> dict[str, Any]:
        return {
            "input": described_tensor(found.input),
            "target": described_tensor(found.target),
            "hidden": linear_weight.shape[1],
            **described_options(found.options, num_items),
            "chunk_rows": found.chunk,
            "weighted": weight is not None,
            "biased": found.bias is not None,
            "gradient of input": found.input.requires_grad and torch.is_grad_enabled(),
        }

    found = agreed(checked, facts, group, debug)
    early = found.options.reduction != "none"
    how = found.terms, early, shard.group, found.chunk
    with without_autocast(found.input.device.type):
        loss: Tensor = _Linear.apply(found.input, found.head, found.bias, *how)
    return loss


def _cast(x: Any, dtype: torch.dtype) -> Any:
    plain = isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64
    return x.to(dtype) if plain else x


class _Checked(NamedTuple):
    input: Tensor
    head: Tensor
    bias: Tensor | None
    target: Tensor
    terms: Terms
    options: Options
    chunk: int


def _check_layer(input: Any, linear_weight: Any, linear_bias: Any) -> None:
    for name, x in (("input", input), ("linear_weight", linear_weight)):
        if not isinstance(x, Tensor) or x.ndim != 2 or not x.is_floating_point():
            what = describe(x) if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"{name} is {what}; wanted a floating tensor with two axes")
    if input.shape[1] != linear_weight.shape[1] or input.dtype != linear_weight.dtype:
        raise ValueError(f"linear_weight has {describe(linear_weight)}, input {describe(input)}: wanted (C, H), (N, H)")
    if linear_bias is None:
        return
    if not isinstance(linear_bias, Tensor):
        raise TypeError(f"linear_bias is a {type(linear_bias).__name__}; wanted a tensor")
    if linear_bias.shape != linear_weight.shape[:1] or linear_bias.dtype != input.dtype:
        raise ValueError(
            f"linear_bias has {describe(linear_bias)}, linear_weight {describe(linear_weight)}: wanted one number for "
            "each of this process's classes, in the same dtype"
        )


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, terms: Terms, reduced: bool, group: Group, chunk: int
    ) -> Tensor:
        wanted = ctx.needs_input_grad[:3]
        early = any(wanted) and reduced and x.dtype != torch.float16
        gradients = _Gradients(x, w, bias, wanted, group) if early else None
        found = []
        for piece in _chunks(x, chunk):
            logits, some = _logits(x[piece], w, bias), terms.rows(piece)
            rows = some.losses(gather(some.columns(logits), group))
            found.append(rows)
            if gradients is not None:
                some.gradient(logits, rows.whole, rows.ce.new_ones(()), None, logits)
                gradients.add(piece, logits)
        rows = _joined(found)
        ctx.gradients = gradients
        ctx.save_for_backward(x, w, bias, *rows.whole, *terms.given)
        ctx.how = terms, group, chunk
        return terms.reduced(rows)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, w, bias, lse, low, distance, *_ = ctx.saved_tensors
        whole = Whole(lse, low, distance)
        terms, group, chunk = ctx.how
        (grad,) = grads
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is not None:
            return *gradients.scaled(grad), *(None,) * 4
        gradients = _Gradients(x, w, bias, ctx.needs_input_grad[:3], group)
        for piece in _chunks(x, chunk):
            logits, incoming = _logits(x[piece], w, bias), grad[piece] if grad.ndim else grad
            terms.rows(piece).gradient(logits, whole.rows(piece), incoming, None, logits)
            gradients.add(piece, logits)
        return *gradients.scaled(None), *(None,) * 4


def _joined(found: list[Losses]) -> Losses:
    """Of all chunks' rows; there is no aux."""
    if len(found) == 1:
        return found[0]
    lse, low, distance = (_cat(parts) for parts in zip(*(each.whole for each in found), strict=True))
    ce = _cat([each.ce for each in found])
    assert lse is not None
    assert low is not None
    assert ce is not None
    return Losses(Whole(lse, low, distance), ce, _cat([each.z_loss for each in found]), None, None)


def _cat(parts: Sequence[Tensor | None]) -> Tensor | None:
    given = [part for part in parts if part is not None]
    return torch.cat(given) if given else None


def _logits(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    return x @ w.T if bias is None else torch.addmm(bias, x, w.T)


def _chunks(x: Tensor, chunk: int) -> list[slice]:
    """Slices of at most `chunk` rows; one, empty, where there are none."""
    return [slice(i, min(i + chunk, len(x))) for i in range(0, max(len(x), 1), chunk)]


class _Gradients:
    """The gradients that are wanted, summed in fp32 (fp64) over chunks and, that of the input, over processes."""

    def __init__(self, x: Tensor, w: Tensor, bias: Tensor | None, wanted: tuple[bool, ...], group: Group) -> None:
        compute = torch.float64 if x.dtype == torch.float64 else torch.float32
        self.input = torch.empty(x.shape, dtype=compute, device=x.device) if wanted[0] else None
        self.weight = torch.zeros(w.shape, dtype=compute, device=w.device) if wanted[1] else None
        of_bias = bias is not None and wanted[2]
        self.bias = torch.zeros(w.shape[:1], dtype=compute, device=w.device) if of_bias else None
        self._x, self._w, self._group = x.detach(), w.detach(), group

    def add(self, piece: slice, grad_logits: Tensor) -> None:
        """The part of one chunk; the sum over processes travels while the weight's gradient is computed."""
        travelling = None
        if self.input is not None:
            part = self.input[piece]
            part.copy_(grad_logits @ self._w)
            travelling = dist.all_reduce(part, group=self._group, async_op=True) if part.numel() else None
        if self.weight is not None:
            if self.weight.dtype == self._x.dtype:
                self.weight.addmm_(grad_logits.T, self._x[piece])
            else:
                self.weight += grad_logits.T @ self._x[piece]
        if self.bias is not None:
            self.bias += grad_logits.sum(0, dtype=self.bias.dtype)
        if travelling is not None:
            travelling.wait()

    def scaled(self, factor: Tensor | None) -> list[Tensor | None]:
        """All three, times a 0-d tensor if one is given, rounded to the arguments' dtype."""
        parts = (self.input, self.weight, self.bias)
        return [None if part is None else _times(part, factor).to(self._x.dtype) for part in parts]


def _times(part: Tensor, factor: Tensor | None) -> Tensor:
    return part if factor is None else part.mul_(factor)

"""softmax, log_softmax, logsumexp and merge of rows that are sharded over processes: one gather of states each."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .._arguments import answers_synonyms, normalise_axis
from .._dispatch import implementation
from ..ops._torch import as_floating, autocast_to_float32, first_derivative_only, refuse_transforms
from ..ops.cross_entropy.options import Options
from ..state import State, merge
from .group import Group, gather, gather_recorded, rank_and_size
from .rows import Whole, merge_parts, summarise
from .shards import check_tensor, from_dtensor, is_dtensor


def all_merge(state: State, group: Group = None) -> State:
    """The state of all processes' parts together, the same on every process.

    Parameters
    ----------
    state : State
        Of tensors, with the same shapes on every process.
    group : ProcessGroup, optional
        All processes unless given.

    Returns
    -------
    State
        One gather of (m, s), and v where there is one; recorded by autograd.

    Source: Milakov & Gimelshein 2018 (arXiv:1805.02867), section 3.1, between processes.
    """
    rank_and_size(group)
    if not isinstance(state, State) or not isinstance(state.m, Tensor):
        raise TypeError(f"state is a {type(state).__name__}; wanted a State of tensors")
    fields = [state.m[..., None], state.s[..., None], *([] if state.v is None else [state.v])]
    parts = gather_recorded(torch.cat(fields, -1), group).unbind(0)
    v = [None if state.v is None else part[..., 2:] for part in parts]
    return merge(*(State(part[..., 0], part[..., 1], each) for part, each in zip(parts, v, strict=True)))


@answers_synonyms
def logsumexp(local: Tensor, axis: int = -1, *, group: Group = None, impl: str = "auto") -> Tensor:
    """log Σ exp over an axis that is sharded over the processes of a group; second derivatives raise.

    Parameters
    ----------
    local : Tensor
        This process's part, real; other axes have the same length on every process, `axis` need not. Integers and bools
        become torch's default dtype. Or a DTensor sharded along `axis`.
    axis : int
        The sharded axis, which disappears.

    Returns
    -------
    Tensor
        Nats, in the dtype of local as above, the same on every process; one gather forward, none backward.

    Raises
    ------
    TypeError, ValueError
        If local is no tensor of real numbers or has no such axis.
    RuntimeError
        If torch.distributed is not initialised.
    """
    local, axis, group = _arguments(local, axis, group)
    lse: Tensor = _LogSumExp.apply(local, axis, group, impl)
    return lse.to(local.dtype)


@answers_synonyms
def softmax(local: Tensor, axis: int = -1, *, group: Group = None, impl: str = "auto") -> Tensor:
    """exp(x) / Σ exp(x) over an axis that is sharded over the processes of a group: this process's part of it.

    Parameters, dtypes and errors are those of `logsumexp`. Shape of local; one gather forward, one sum backward, and no
    second derivative.
    """
    local, axis, group = _arguments(local, axis, group)
    y: Tensor = _Normalised.apply(local, axis, "softmax", group, impl)
    return y


@answers_synonyms
def log_softmax(local: Tensor, axis: int = -1, *, group: Group = None, impl: str = "auto") -> Tensor:
    """x − log Σ exp(x) over an axis that is sharded over the processes of a group: this process's part of it.

    Parameters, dtypes and errors are those of `logsumexp`. Shape of local; one gather forward, one sum backward, and no
    second derivative.
    """
    local, axis, group = _arguments(local, axis, group)
    y: Tensor = _Normalised.apply(local, axis, "log_softmax", group, impl)
    return y


def _arguments(local: Any, axis: int, group: Group) -> tuple[Tensor, int, Group]:
    refuse_transforms()
    check_tensor("local", local)
    if local.ndim == 0:
        raise ValueError("local has no axis that could be sharded: shape ()")
    axis = normalise_axis(axis, local.ndim)
    if is_dtensor(local):
        local, _, _, group = from_dtensor("local", local, axis, group=group)
    rank_and_size(group)
    local = as_floating(local, "local")
    return (local.float() if autocast_to_float32(local) else local), axis, group


def _rows(x: Tensor, axis: int) -> Tensor:
    moved = x.movedim(axis, -1)
    return moved.reshape(math.prod(moved.shape[:-1]), x.shape[axis])


def _whole(x: Tensor, axis: int, group: Group, impl: str) -> Whole:
    part = summarise(_rows(x, axis), Options(), None, impl, spread=False, aux=False)
    return merge_parts(*gather(torch.stack([part.lse, part.lse_low]), group).unbind(1))


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: int, group: Group, impl: str) -> Tensor:
        rows = _rows(x, axis)
        part = summarise(rows, Options(), None, impl, spread=False, aux=False)
        columns = [part.lse, part.lse_low]
        if ctx.needs_input_grad[0]:  # +inf elements share a row's gradient: how many there are
            columns.append((rows == torch.inf).sum(-1).to(part.lse.dtype))
        lses, lows, *counts = gather(torch.stack(columns), group).unbind(1)
        whole = merge_parts(lses, lows)
        ctx.save_for_backward(x, whole.lse, whole.low, *(count.sum(0) for count in counts))
        ctx.how = axis, impl
        shape = [length for i, length in enumerate(x.shape) if i != axis]
        return whole.lse.view(shape)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, lse, low, infinite = ctx.saved_tensors
        axis, impl = ctx.how
        grad, rows = grads[0].reshape(-1), _rows(x, axis)
        dx = _probabilities(rows, Whole(lse, low), torch.where(lse == -torch.inf, 0.0, grad), impl)
        # Only rows without a finite log-sum-exp came out NaN; those of −inf and +inf have gradients after all.
        dx = torch.where((lse == -torch.inf)[:, None], 0.0, dx)
        share = torch.where(rows == torch.inf, (grad / infinite.clamp(min=1.0))[:, None], 0.0).to(dx.dtype)
        dx = torch.where((lse == torch.inf)[:, None], share, dx)
        return _restore(dx, x, axis), None, None, None


class _Normalised(torch.autograd.Function):
    """softmax and log_softmax; saves its result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: int, name: str, group: Group, impl: str) -> Tensor:
        whole = _whole(x, axis, group, impl)
        rows = _rows(x, axis)
        if name == "softmax":
            y = _probabilities(rows, whole, torch.ones_like(whole.lse), impl)
        else:
            steady = torch.where(torch.isfinite(whole.lse), whole.lse, torch.nan)
            y = ((rows - steady[:, None]) - whole.low[:, None]).to(x.dtype)
        y = _restore(y, x, axis)
        ctx.save_for_backward(y)
        ctx.how = axis, name, group
        return y

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (y,) = ctx.saved_tensors
        axis, name, group = ctx.how
        compute = torch.float64 if y.dtype == torch.float64 else torch.float32
        grad, wide = grads[0].to(compute), y.to(compute)
        total = (grad * wide if name == "softmax" else grad).sum(axis, keepdim=True)
        total = gather(total[None], group).sum((0, 1))
        dx = wide * (grad - total) if name == "softmax" else grad - wide.exp() * total
        return dx.to(y.dtype), None, None, None, None


def _probabilities(rows: Tensor, whole: Whole, factor: Tensor, impl: str) -> Tensor:
    """factor · exp((x − lse) − low) of (M, C) rows; NaN in a row without a finite log-sum-exp."""
    if rows.shape[1] == 0:
        return torch.empty_like(rows)
    options = Options(reduction="none")
    nobody = torch.full(whole.lse.shape, options.ignore_index, dtype=torch.int64, device=rows.device)
    one, zero = torch.ones(2, dtype=whole.lse.dtype, device=rows.device), torch.zeros_like(whole.lse)
    module = implementation("cross_entropy", rows, impl)
    # An ignored row's gradient is what comes in through its log-sum-exp, and that is factor · p.
    p: Tensor = module.backward(rows, nobody, None, whole.lse, whole.low, one, options, zero, factor)
    return p


def _restore(rows: Tensor, x: Tensor, axis: int) -> Tensor:
    moved = x.movedim(axis, -1)
    return rows.view(moved.shape).movedim(-1, axis)

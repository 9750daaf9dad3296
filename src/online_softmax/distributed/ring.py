"""Attention over a sequence that is sharded over processes: keys and values travel a ring while blocks are computed.

Each process keeps its queries.  In n steps every process's keys and values pass it by; the partial results merge as
states do.  Backward sends them round once more, each accompanied by its own gradient, which thus comes home complete.
Source: Liu et al. 2023, Ring Attention (arXiv:2310.01889); the zigzag order is common practice for causal rings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .._arguments import answers_synonyms, flag
from .._arrays import describe
from .._dispatch import implementation
from ..ops._torch import autocast_dtype, first_derivative_only, refuse_transforms
from ..ops.attention.arguments import checked_scale, divides
from ..ops.attention.options import Forward, Options
from .checks import agreed
from .group import Group, rank_and_size
from .sequence import checked_lengths, local_lengths, pair_lengths
from .shards import check_local


@answers_synonyms
def ring_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    lengths: Sequence[int] | None = None,
    return_lse: bool = False,
    group: Group = None,
    debug: bool = False,
    impl: str = "auto",
) -> Any:
    """`online_softmax.attention` over sequences whose positions are sharded over the processes of a group.

    Parameters
    ----------
    q : Tensor (…, heads, local length, head size)
    k, v : Tensor (…, key heads, local length, head size)
        This process's positions, as `shard_sequence` deals them: of 2 n chunks for n processes, r and 2 n − 1 − r.
        Key heads divide heads.
    causal : bool
        A position sees itself and those before it in its own sequence.
    lengths : sequence of int, optional
        The whole lengths of sequences packed along the axis, which do not see each other: any number of them, of any
        length, 0 too. Not given: one sequence, of which every process has equally much, an even number of positions.
    scale, return_lse, impl
        As in `online_softmax.attention`.
    group : ProcessGroup, optional
        All processes unless given.
    debug : bool
        Compare shapes, dtypes and options over the processes first, so that a difference, or an argument that one
        process alone refuses, is an error on all of them and not a hang. All processes must pass the same.

    Returns
    -------
    out, or (out, lse) with return_lse
        Of the local queries, as `online_softmax.attention` over the whole sequence gives them.

    Raises
    ------
    TypeError, ValueError
        If a shape, dtype or option does not fit.
    RuntimeError
        If torch.distributed is not initialised, or, from torch, when a process dies or comes too late.
    """
    refuse_transforms()
    debug = flag("debug", debug)
    cast = autocast_dtype(q.device.type) if isinstance(q, Tensor) else None
    if cast is not None and q.dtype != torch.float64:
        q, k, v = (x.to(cast) if isinstance(x, Tensor) else x for x in (q, k, v))
    return_lse, ring = agreed(
        lambda: (flag("return_lse", return_lse), _ring(q, k, v, causal, scale, lengths, group, impl)),
        lambda found: _facts(q, k, v, *found),
        group,
        debug,
    )
    count = math.prod(q.shape[:-3])
    length, heads, key_heads = q.shape[-2], q.shape[-3], k.shape[-3]
    q5 = q.reshape(count, key_heads, heads // max(key_heads, 1), length, q.shape[-1])
    k4, v4 = (x.reshape(count, key_heads, length, x.shape[-1]) for x in (k, v))
    out, lse = _RingAttention.apply(q5, k4, v4, ring)
    out = out.reshape(*q.shape[:-1], v.shape[-1])
    return (out, lse.reshape(q.shape[:-1])) if return_lse else out


def _ring(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: Any,
    scale: Any,
    lengths: Sequence[int] | None,
    group: Group,
    impl: str,
) -> _Ring:
    """The ring of checked arguments; asks no other process."""
    causal = flag("causal", causal)
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_local(name, x)
        if not x.is_floating_point():
            raise TypeError(f"{name} has {describe(x)}; wanted a floating dtype")
    rank, size = rank_and_size(group)
    came = f"q has {describe(q)}, k {describe(k)}, v {describe(v)}"
    alike = q.shape[:-3] == k.shape[:-3] and q.shape[-2:] == k.shape[-2:] and v.shape[:-1] == k.shape[:-1]
    if q.ndim < 3 or k.ndim != q.ndim or not alike:
        raise ValueError(f"{came}; wanted (…, heads, length, head size)")
    together = q.dtype == k.dtype == v.dtype and q.device == k.device == v.device
    if not divides(k.shape[-3], q.shape[-3]) or not together:
        raise ValueError(f"{came}; wanted key heads dividing heads, one dtype and one device")
    length = q.shape[-2]
    if lengths is None:
        if length % 2:
            raise ValueError(
                f"q has {length} positions; without lengths= wanted an even number, the same on every process: pass "
                "the whole lengths, as to shard_sequence"
            )
        lengths = [length * size]
    whole = checked_lengths(lengths)
    here = sum(local_lengths(whole, rank, size))
    if here != length:
        raise ValueError(
            f"q has {length} positions; of lengths {list(whole)} rank {rank} of {size} has {here} (see shard_sequence)"
        )
    implementation("attention", q, impl)
    return _Ring(rank, size, group, whole, causal, checked_scale(scale, q), impl)


def _facts(q: Tensor, k: Tensor, v: Tensor, return_lse: bool, ring: _Ring) -> dict[str, Any]:
    """What every process must have alike."""
    return {
        "heads": q.shape[:-2],
        "key heads": k.shape[:-2],
        "head sizes": (q.shape[-1], v.shape[-1]),
        "dtype": str(q.dtype),
        "causal": ring.causal,
        "scale": ring.scale,
        "lengths": ring.lengths,
        "return_lse": return_lse,
    }


class _Block(NamedTuple):
    """Queries against keys that have just come by: slices of the local positions, and of theirs."""

    queries: slice
    keys: slice
    causal: bool


class _Ring(NamedTuple):
    rank: int
    size: int
    group: Group
    lengths: tuple[int, ...]
    causal: bool
    scale: float
    impl: str

    def blocks(self, owner: int) -> list[_Block]:
        """What the local queries see of the keys of process `owner`."""
        found = []
        query = key = 0
        for length in self.lengths:
            early, late = pair_lengths(length, self.rank, self.size)
            their_early, their_late = pair_lengths(length, owner, self.size)
            queries, keys = slice(query, query + early + late), slice(key, key + their_early + their_late)
            query, key = queries.stop, keys.stop
            if self.causal and owner < self.rank:  # their first chunk lies before both of ours, their second after
                keys = slice(keys.start, keys.start + their_early)
            elif self.causal and owner > self.rank:  # both of theirs lie between ours
                queries = slice(queries.start + early, queries.stop)
            found.append(_Block(queries, keys, self.causal and owner == self.rank))
        return [
            block for block in found if block.queries.stop > block.queries.start and block.keys.stop > block.keys.start
        ]

    def pass_on(self, tensors: list[Tensor], owner: int) -> tuple[list[Tensor], list[Any]]:
        """Sends tensors, whose axis −2 is that of process `owner`, to the next process; gives what will have come."""
        to, back = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        before = (owner - 1) % self.size
        length = sum(local_lengths(self.lengths, before, self.size))
        received = [x.new_empty((*x.shape[:-2], length, x.shape[-1])) for x in tensors]
        peers = [rank if self.group is None else dist.get_global_rank(self.group, rank) for rank in (to, back)]
        sends = [dist.P2POp(dist.isend, x.contiguous(), peers[0], self.group) for x in tensors]
        receipts = [dist.P2POp(dist.irecv, x, peers[1], self.group) for x in received]
        full = [op for op in sends + receipts if op.tensor.numel()]
        return received, [(dist.batch_isend_irecv(full) if full else [], sends)]


def _wait(pending: list[Any]) -> None:
    for works, _ in pending:
        for work in works:
            work.wait()


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, ring: _Ring) -> tuple[Tensor, Tensor]:
        module = implementation("attention", q, ring.impl)
        compute = torch.float64 if q.dtype == torch.float64 else torch.float32
        out = torch.zeros((*q.shape[:-1], v.shape[-1]), dtype=compute, device=q.device)
        lse = torch.full(q.shape[:-1], -torch.inf, dtype=compute, device=q.device)
        held = [k, v]
        pending: list[Any] = []
        for step in range(ring.size):
            owner = (ring.rank - step) % ring.size
            _wait(pending)
            if step + 1 < ring.size:
                coming, pending = ring.pass_on(held, owner)
            for block in ring.blocks(owner):
                options = Options(ring.scale, block.causal)
                part = module.attention(q[..., block.queries, :], *(x[..., block.keys, :] for x in held), None, options)
                here, there = out[..., block.queries, :], lse[..., block.queries]
                merged = module.merge([here, part.out.to(compute)], [there, part.lse])
                here.copy_(merged[0])
                there.copy_(merged[1])
            if step + 1 < ring.size:
                held = coming
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.ring = ring
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> tuple[Any, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        ring: _Ring = ctx.ring
        if grad_out is None:  # every process must take part in the ring
            grad_out = torch.zeros_like(out)
        module = implementation("attention", q, ring.impl)
        dq = torch.zeros(q.shape, dtype=lse.dtype, device=q.device)
        low = torch.zeros_like(lse)
        held = [k, v]
        pending: list[Any] = []
        travelling: list[Any] = []
        sums = [torch.zeros(x.shape, dtype=lse.dtype, device=x.device) for x in held]
        for step in range(ring.size):
            owner = (ring.rank - step) % ring.size
            _wait(pending)
            if step + 1 < ring.size:
                coming, pending = ring.pass_on(held, owner)
            found = []
            for block in ring.blocks(owner):
                rows = (..., block.queries, slice(None))
                result = Forward(out[rows], lse[..., block.queries], low[..., block.queries])
                along = None if grad_lse is None else grad_lse[..., block.queries]
                keys = [x[..., block.keys, :] for x in held]
                options = Options(ring.scale, block.causal)
                found.append(
                    (block, module.attention_backward(grad_out[rows], along, q[rows], *keys, None, result, options))
                )
            # The sums so far have come from the process before, while these blocks were computed.
            _wait(travelling)
            for block, (dq_part, *parts) in found:
                dq[..., block.queries, :] += dq_part
                for total, part in zip(sums, parts, strict=True):
                    total[..., block.keys, :] += part
            sums, travelling = ring.pass_on(sums, owner) if ring.size > 1 else (sums, [])
            if step + 1 < ring.size:
                held = coming
        _wait(travelling)
        return dq.to(q.dtype), sums[0].to(k.dtype), sums[1].to(v.dtype), None

"""The process group of a call, and the one collective that most calls need."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

if dist.is_available() and not dist.is_initialized():
    # Its functions take the group of all processes for a default argument when the module is first imported, which
    # torch.optim does too. Once a group exists they would hold on to it, and Gloo's threads, still alive at the end
    # of the program, then abort it now and then.
    import torch.distributed.nn

Group = Any
"""A torch.distributed.ProcessGroup, or None for all processes."""

# The name that later versions of torch give it.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def rank_and_size(group: Group) -> tuple[int, int]:
    """This process's place in the group, and how many there are."""
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "torch.distributed is not initialised: call torch.distributed.init_process_group() first, "
            "in a program started with torchrun"
        )
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError("this process is not a member of the group it passes")
    return rank, dist.get_world_size(group)


def gather(part: Tensor, group: Group) -> Tensor:
    """Every process's `part`, all of one shape, along a new first axis."""
    size = dist.get_world_size(group)
    part = part.contiguous()
    if size == 1:
        return part[None]
    whole = part.new_empty((size, *part.shape))
    if part.numel():
        _all_gather(whole.view(size * part.shape[0], *part.shape[1:]), part, group=group)
    return whole


class _Gather(torch.autograd.Function):
    """gather, recorded: the gradient of a result that every process has once is that of its own part."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: Group) -> Tensor:
        ctx.rank = dist.get_rank(group)
        return gather(part, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0][ctx.rank], None


def gather_recorded(part: Tensor, group: Group) -> Tensor:
    """`gather`, recorded by autograd."""
    whole: Tensor = _Gather.apply(part, group)
    return whole

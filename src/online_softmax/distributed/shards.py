"""Which classes a process has, and DTensors as local shards."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._arrays import describe
from .group import Group, rank_and_size


class Shard(NamedTuple):
    """Classes [start, start + classes) of `vocab_size`, held by one process of `group`."""

    start: int
    classes: int
    vocab_size: int
    group: Group


def locate(name: str, local: Any, axis: int, vocab_start: int | None, vocab_size: int | None, group: Group) -> Shard:
    """The classes along `axis` of the local tensor; a ValueError where they cannot be a shard of the whole."""
    rank, size = rank_and_size(group)
    check_tensor(name, local)
    if local.ndim <= axis:
        raise ValueError(f"{name} has {describe(local)}; wanted classes along axis {axis}")
    classes = local.shape[axis]
    for given, argument in ((vocab_start, "vocab_start"), (vocab_size, "vocab_size")):
        if given is not None and (isinstance(given, bool) or not isinstance(given, int)):
            raise TypeError(f"{argument} is {given!r}; wanted an int or None")
    if vocab_start is None:
        if vocab_size is not None and vocab_size != classes * size:
            whole = " It has all classes: pass this process's own shard." if classes == vocab_size else ""
            raise ValueError(
                f"{name} has {describe(local)}: {classes} of vocab_size {vocab_size} classes on {size} processes are "
                f"no equal shard; uneven ones need vocab_start.{whole}"
            )
        vocab_start, vocab_size = rank * classes, size * classes
    elif vocab_size is None:
        raise ValueError(f"vocab_start is {vocab_start} without vocab_size; wanted both or neither")
    if vocab_start < 0 or vocab_start + classes > vocab_size:
        raise ValueError(
            f"{name} has {classes} classes from vocab_start {vocab_start} on, beyond vocab_size {vocab_size}"
        )
    return Shard(vocab_start, classes, vocab_size, group)


class Local(NamedTuple):
    """A DTensor's local part, where it lies in the whole, and the group that shares it."""

    tensor: Tensor
    start: int
    size: int
    group: Group


def is_dtensor(x: Any) -> bool:
    """Whether x is a torch.distributed.tensor.DTensor."""
    if type(x) is Tensor or not torch.distributed.is_available():
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(x, DTensor)


def check_tensor(name: str, x: Any) -> None:
    """A TypeError for anything but a tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}; wanted a torch tensor")


def check_local(name: str, x: Any) -> None:
    """A TypeError for anything but a plain tensor: this process's own part."""
    check_tensor(name, x)
    if is_dtensor(x):
        raise TypeError(f"{name} is a DTensor; wanted this process's own part: {name}.to_local()")


def from_dtensor(
    name: str, x: Any, axis: int, vocab_start: int | None = None, vocab_size: int | None = None, group: Group = None
) -> Local:
    """The local part of a DTensor that is sharded along `axis` over one axis of its mesh, and nowhere else.

    What else was given has to agree with what the DTensor knows itself.
    """
    from torch.distributed.tensor import Replicate, Shard

    axis %= x.ndim
    sharded = [i for i, placement in enumerate(x.placements) if placement != Replicate()]
    if len(sharded) != 1 or x.placements[sharded[0]] != Shard(axis):
        raise ValueError(
            f"{name} is a DTensor with placements {x.placements}; wanted one Shard({axis}), else Replicate()"
        )
    of_mesh = x.device_mesh.get_group(sharded[0])
    rank, size = rank_and_size(of_mesh)
    whole = x.shape[axis]
    each = -(-whole // size)  # as torch.chunk: all equal but the last ones
    found = Local(x.to_local(), min(rank * each, whole), whole, of_mesh)
    wanted = {"vocab_start": (vocab_start, found.start), "vocab_size": (vocab_size, whole), "group": (group, of_mesh)}
    for argument, (given, own) in wanted.items():
        if given is not None and given != own:
            raise ValueError(f"{argument} is {given}; the DTensor {name} has {own}: leave it out")
    return found


def replicated(name: str, x: Any) -> Any:
    """A DTensor that every process has whole, as the plain tensor; anything else unchanged."""
    if not is_dtensor(x):
        return x
    from torch.distributed.tensor import Replicate

    if any(placement != Replicate() for placement in x.placements):
        raise ValueError(f"{name} is a DTensor with placements {x.placements}; wanted Replicate() only")
    return x.to_local()

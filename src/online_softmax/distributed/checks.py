"""check_group: an error that names what differs between processes, where a collective would hang or give nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor

from .group import Group, rank_and_size

_Result = TypeVar("_Result")
_REFUSALS = (TypeError, ValueError, IndexError, RuntimeError)


def check_group(*tensors: Tensor, group: Group = None, **options: Any) -> None:
    """Compare shapes, dtypes, device kinds and options over the processes of a group; all of them must call it.

    Parameters
    ----------
    *tensors : Tensor
        Whose number of axes, shape, dtype and kind of device must agree.
    group : ProcessGroup, optional
        All processes unless given.
    **options
        Plain values that must agree; any that compare with ==.

    Raises
    ------
    ValueError
        On every process, naming what differs and on which ranks.

    Source: this project; a mismatch in a collective is otherwise a hang until its time-out.
    """
    described: dict[str, Any] = {f"tensor {i}": described_tensor(tensor) for i, tensor in enumerate(tensors)}
    compare({**described, **options}, group)


def compare(facts: dict[str, Any], group: Group) -> list[dict[str, Any]]:
    """Everybody's facts; a ValueError on every process where they differ."""
    _, size = rank_and_size(group)
    found: list[Any] = [None] * size
    dist.all_gather_object(found, facts, group=group)
    names = sorted({name for each in found for name in each})
    for name in names:
        values = [each.get(name, "absent") for each in found]
        if any(value != values[0] for value in values):
            spelled = ", ".join(f"rank {rank}: {value}" for rank, value in enumerate(values))
            raise ValueError(f"processes of the group disagree about {name}: {spelled}")
    return found


def together(check: Callable[[], _Result], group: Group) -> _Result:
    """check() of every process; where it refuses something on any of them, an error on all of them."""
    _, size = rank_and_size(group)
    refused: Exception | None = None
    try:
        result = check()
    except _REFUSALS as error:
        refused = error
    found: list[Any] = [None] * size
    kind = next((i for i, each in enumerate(_REFUSALS) if isinstance(refused, each)), 0)
    dist.all_gather_object(found, None if refused is None else (kind, str(refused)), group=group)
    if refused is not None:
        raise refused
    for rank, told in enumerate(found):
        if told is not None:
            raise _REFUSALS[told[0]](f"on rank {rank}: {told[1]}")
    return result


def agreed(
    check: Callable[[], _Result], facts: Callable[[_Result], dict[str, Any]], group: Group, debug: bool
) -> _Result:
    """check(), which asks no other process; with `debug` an error on all of them where one refuses or facts differ."""
    if not debug:
        return check()
    result = together(check, group)
    compare(facts(result), group)
    return result


def check_shards(vocab_start: int, classes: int, vocab_size: int, group: Group) -> None:
    """Raise unless the shards of all processes cover 0 to vocab_size once each."""
    _, size = rank_and_size(group)
    found: list[Any] = [None] * size
    dist.all_gather_object(found, (vocab_start, vocab_start + classes), group=group)
    end = 0
    for start, stop in sorted(found):
        if start != end:
            break
        end = stop
    else:
        if end == vocab_size:
            return
    spelled = ", ".join(f"rank {rank}: [{start}, {stop})" for rank, (start, stop) in enumerate(found))
    raise ValueError(f"the shards do not cover classes 0 to {vocab_size - 1} once each: {spelled}")


def described_tensor(tensor: Tensor) -> str:
    """What must agree about a tensor."""
    return f"shape {tuple(tensor.shape)}, dtype {str(tensor.dtype).removeprefix('torch.')}, {tensor.device.type}"

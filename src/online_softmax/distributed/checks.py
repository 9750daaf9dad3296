"""check_group: an error that names what differs between processes, where a collective would hang or give nonsense."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor

from ..ops.cross_entropy.options import Options
from .group import Group, rank_and_size
from .shards import Shard, locate

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
        Plain values that must agree: any that compare with == and can be pickled.

    Raises
    ------
    ValueError
        On every process, naming what differs and on which ranks.
    TypeError
        On every process, if any of them gives something else than a tensor, or an option that is no plain value.

    Source: this project; a mismatch in a collective is otherwise a hang until its time-out.
    """

    def described() -> dict[str, Any]:
        for i, tensor in enumerate(tensors):
            if not isinstance(tensor, Tensor):
                raise TypeError(
                    f"tensors[{i}] is a {type(tensor).__name__}; wanted a torch tensor, and plain values by name"
                )
        for name, value in options.items():
            _check_plain(name, value)
        return {f"tensor {i}": described_tensor(tensor) for i, tensor in enumerate(tensors)}

    agreed(described, lambda found: {**found, **options}, group, debug=True)


def _check_plain(name: str, value: Any) -> None:
    if hasattr(value, "__array__"):
        raise TypeError(f"{name} is a {type(value).__name__}; wanted a plain value: tensors go without a name")
    try:
        pickle.dumps(value)
    except Exception:  # each type fails in its own way
        raise TypeError(f"{name} is {value!r}; wanted a plain value, which can be sent to other processes") from None


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


def agreed_shard(
    name: str, local: Any, axis: int, vocab_start: int | None, vocab_size: int | None, group: Group, debug: bool
) -> Shard:
    """locate(), which asks no other process; with `debug` an error on all of them unless the shards make one whole."""

    def located() -> Shard:
        return locate(name, local, axis, vocab_start, vocab_size, group)

    if not debug:
        return located()
    shard = together(located, group)
    _, size = rank_and_size(group)
    found: list[Any] = [None] * size
    dist.all_gather_object(found, shard._replace(group=None), group=group)
    end = 0
    for each in sorted(found):
        if each.classes:
            end = each.start + each.classes if each.start == end else -1
    if any(each.vocab_size != end for each in found):
        spelled = ", ".join(
            f"rank {rank}: [{each.start}, {each.start + each.classes}) of {each.vocab_size}"
            for rank, each in enumerate(found)
        )
        hint = "" if len({each.vocab_size for each in found}) == 1 else "; uneven ones need vocab_start and vocab_size"
        raise ValueError(f"the shards of {name} do not cover the classes of one vocabulary once each: {spelled}{hint}")
    return shard


def described_options(options: Options, num_items: Any) -> dict[str, Any]:
    """What must agree about a loss, by name; reads num_items where it lies."""
    return {**options._asdict(), "num_items": None if num_items is None else float(num_items)}


def described_tensor(tensor: Tensor) -> str:
    """What must agree about a tensor."""
    return f"shape {tuple(tensor.shape)}, dtype {str(tensor.dtype).removeprefix('torch.')}, {tensor.device.type}"

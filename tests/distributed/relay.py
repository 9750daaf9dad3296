"""A process group whose tensors travel by way of the CPU, over Gloo.

Several processes may then share one GPU, which NCCL refuses: for tests of what kernels compute.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import record_function

BEYOND = ("case_dtensors",)
"""Cases that it cannot run: DTensors ask for collectives that a group written in Python cannot have."""


class _Arrival(dist._Work):
    """What Gloo works on, and what is done with it when it has come."""

    def __init__(self, works: list[Any], unpack: Callable[[], None]) -> None:
        super().__init__()
        self._works, self._unpack = works, unpack

    def wait(self, timeout: Any = None) -> bool:
        for work in self._works:
            work.wait()
        self._unpack()
        self._works, self._unpack = [], lambda: None
        return True


class Relay(dist.ProcessGroup):
    """The collectives that online_softmax.distributed asks for."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._size = size
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self) -> str:  # noqa: N802
        return "relay"

    def _set_group_name(self, name: str) -> None:
        self._name = name

    @property
    def group_name(self) -> str:
        return self._name

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> _Arrival:
        """Into a list of tensors."""
        received = [torch.empty_like(x, device="cpu") for x in outputs[0]]
        work = self._gloo.allgather([received], [_on_cpu(inputs[0])])
        return _Arrival([work], lambda: _fill(outputs[0], received))

    def _allgather_base(self, output: Tensor, part: Tensor, opts: Any = None) -> _Arrival:
        with record_function("c10d::_allgather_base_"):  # as torch's own groups, for whoever counts
            return self.allgather([list(output.reshape(self._size, -1))], [part.reshape(-1)])

    all_gather_single = _allgather_base  # its name in later versions

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> _Arrival:
        """Sums."""
        with record_function("c10d::allreduce_"):
            sums = [_on_cpu(x).clone() for x in tensors]
            work = self._gloo.allreduce(sums)
            return _Arrival([work], lambda: _fill(tensors, sums))

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> _Arrival:
        """From one process."""
        copies = [_on_cpu(x).clone() for x in tensors]
        work = self._gloo.broadcast(copies, opts)
        return _Arrival([work], lambda: _fill(tensors, copies))

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> _Arrival:
        """From one process, a tensor to each."""
        received = [torch.empty(x.shape, dtype=x.dtype, device="cpu") for x in outputs]
        work = self._gloo.scatter(received, [[_on_cpu(x).contiguous() for x in row] for row in inputs], opts)
        return _Arrival([work], lambda: _fill(outputs, received))

    def send(self, tensors: list[Tensor], to: int, tag: int) -> _Arrival:
        """To one process."""
        copies = [_on_cpu(x).contiguous() for x in tensors]
        return _Arrival([self._gloo.send(copies, to, tag)], lambda: None)

    def recv(self, tensors: list[Tensor], source: int, tag: int) -> _Arrival:
        """From one process."""
        received = [torch.empty(x.shape, dtype=x.dtype, device="cpu") for x in tensors]
        work = self._gloo.recv(received, source, tag)
        return _Arrival([work], lambda: _fill(tensors, received))

    def barrier(self, opts: Any = None) -> _Arrival:
        """All have come here."""
        return _Arrival([self._gloo.barrier()], lambda: None)


def _on_cpu(x: Tensor) -> Tensor:
    return x.detach().to("cpu")


def _fill(tensors: list[Tensor], values: list[Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)


def register() -> None:
    """Makes "relay" the name of a backend."""
    dist.Backend.register_backend("relay", Relay, devices=["cpu", "cuda"])

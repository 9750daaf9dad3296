"""Which kernels the cases of distributed functions ask for: gone through once with kernels that do nothing.

One by one, where the cases first need them, several hundred would take minutes to compile.  Nothing is computed here
and nobody else takes part, so results are wrong, and a case that minds ends early: what it then still needs is compiled
when it runs.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any

import pytest
import torch

from online_softmax._cuda.compile import Source

MODULES = tuple(f"tests.distributed.{name}_cases" for name in ("loss", "linear", "softmax", "ring"))


class _Nothing:
    """Stands for a loaded kernel."""

    resident = 132

    def __call__(self, *_: Any) -> None:
        pass

    def ready(self, *_: Any) -> tuple[()]:
        return ()


def without_kernels() -> set[Source]:
    """From now on kernels do nothing, and are noted in the set; before any operation is imported."""
    from online_softmax._cuda import launch, memory

    found: set[Source] = set()

    def load(device: int, source: Source, *_: Any, **__: Any) -> _Nothing:
        found.add(source)
        return _Nothing()

    launch.load = load  # type: ignore[assignment]
    launch.stream_here = lambda _: None  # type: ignore[assignment]
    launch.stream_there = lambda _: contextlib.nullcontext()  # type: ignore[assignment,return-value]
    launch.launch_on = lambda *_: None

    def empty(shape: tuple[int, ...], _: tuple[int, ...], dtype: torch.dtype, device: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=device if device >= 0 else "cpu")

    memory.empty = empty
    return found


def _rehearse(job: tuple[str, int, int]) -> set[Source]:
    """What one process of several loads.  Changes modules: for a process that does nothing else."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    module, rank, size = job
    found = without_kernels()
    # What no kernel fills must not be an index out of range.
    torch.empty, torch.empty_like, torch.Tensor.new_empty = torch.zeros, torch.zeros_like, torch.Tensor.new_zeros
    torch.set_default_device("cuda")
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    cases = importlib.import_module(module)
    for name in ("within_ulps", "close_gradient"):
        setattr(cases, name, lambda *_, **__: None)
    torch.testing.assert_close = lambda *_, **__: None
    for name in dir(cases):
        if name.startswith("case_"):
            with contextlib.suppress(Exception, pytest.fail.Exception):
                getattr(cases, name)(rank, size)
    return found


def sources(modules: tuple[str, ...], size: int) -> set[Source]:
    """Of all cases of these modules, with so many processes."""
    jobs = [(module, rank, size) for module, rank in product(modules, range(size))]
    with ProcessPoolExecutor(len(jobs), mp_context=multiprocessing.get_context("spawn")) as pool:
        return set().union(*pool.map(_rehearse, jobs))

"""Takes the place of launches in a copy of the library: its CUDA implementations then take CPU tensors."""

from __future__ import annotations

import ctypes
import struct
import sys
from contextlib import ExitStack
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from tests.cuda.emulator.build import PACKAGE, Builder

from online_softmax._cuda.compile import Source
from online_softmax._cuda.limits import Limits, limits_of

_COPY = "emulated_online_softmax"


class _Launch(ctypes.Structure):  # as machine.h has it
    _fields_ = [(name, ctypes.c_int) for name in ("clusters", "cluster", "threads", "dynamic_bytes", "backwards")]


class Device:
    """The device that is emulated."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self._loaded: dict[tuple[Any, ...], Loaded] = {}
        launch = _copied_launch()
        launch.load = self.load
        launch.launch_on = lambda _, shape, kernel, *arguments: kernel.run(*shape, *arguments)
        launch.stream_here = lambda _: "a stream"
        for module in (launch, import_module(f"{_COPY}._cuda.limits")):
            module.device_limits = lambda _: self.limits()
        memory = import_module(f"{_COPY}._cuda.memory")
        memory.empty = lambda shape, strides, dtype, _: torch.empty_strided(shape, strides, dtype=dtype)
        self.reset()

    def reset(self, largest_cluster: int = 16) -> None:
        """As it was at first, or granting smaller clusters: rows that need more are split, or take another way."""
        self.largest_cluster = largest_cluster
        self.backwards = False  # whether the last thread goes first
        self.launched: list[Loaded] = []
        for name, module in sys.modules.items():  # what was chosen for other limits
            if name.startswith(f"{_COPY}."):
                for kept in vars(module).values():
                    if hasattr(kept, "cache_clear"):
                        kept.cache_clear()
        self.module("_cuda.ready")._ready.clear()

    def package(self, name: str) -> None:
        """A package of the copy without what its __init__ imports: torch's operators are registered once a process."""
        whole = f"{_COPY}.{name}"
        if whole not in sys.modules:
            sys.modules[whole] = found = ModuleType(whole)
            found.__path__ = [str(PACKAGE.joinpath(*name.split(".")))]

    def limits(self) -> Limits:
        """What kernels are chosen for."""
        return limits_of((9, 0))._replace(largest_cluster=self.largest_cluster)

    def module(self, name: str) -> ModuleType:
        """A module of the copy."""
        return import_module(f"{_COPY}.{name}")

    def load(
        self, device: int, source: Source, threads: int, cluster: int = 1, shared: int = 0, early: bool = False
    ) -> Loaded:
        """As launch.load."""
        key = (source, threads, cluster, shared)
        if key not in self._loaded:
            self._loaded[key] = Loaded(self, *key)
        return self._loaded[key]


def _copied_launch() -> ModuleType:
    """launch.py of a copy of the library under another name, so that nobody else meets what is changed in it."""
    spec = spec_from_file_location(_COPY, PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)])
    assert spec is not None
    assert spec.loader is not None
    sys.modules[_COPY] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    with ExitStack() as stack:  # where torch is built without CUDA, what is asked of it on import
        stack.enter_context(mock.patch.object(torch.backends.cuda, "is_built", return_value=True))
        for name in ("_cuda_getCurrentRawStream", "_cuda_getDevice"):
            stack.enter_context(mock.patch.object(torch._C, name, None, create=True))
        return import_module(f"{_COPY}._cuda.launch")


class Loaded:
    """A kernel, with the block, cluster and shared memory it is launched with."""

    resident = 2  # clusters at once: those that stay take row after row

    def __init__(self, device: Device, source: Source, threads: int, cluster: int, shared: int) -> None:
        self.source, self.threads, self.cluster, self.shared = source, threads, cluster, shared
        self._device = device
        self._kernel = getattr(device.builder.library(source), f"emulate_{source.entry}")
        self._kernel.restype = ctypes.c_char_p

    def ready(self, grid: int, threads: int | None = None) -> tuple[tuple[int, int], Loaded]:
        """What `launch_on` takes between the stream and the arguments."""
        return (grid, threads or self.threads), self

    def __call__(self, grid: int, *arguments: Any) -> None:
        """Launch `grid` clusters."""
        self.run(grid, self.threads, *arguments)

    def run(self, grid: int, threads: int, *arguments: Any) -> None:
        """Integers travel as 64 bits, floats as double, as those of cuda.core do."""
        words = [struct.pack("<d" if isinstance(each, float) else "<q", each) for each in arguments]
        launch = _Launch(grid, self.cluster, threads, self.shared, self._device.backwards)
        self._device.launched.append(self)
        error = self._kernel(ctypes.byref(launch), b"".join(words), len(words))
        if error is not None:
            raise RuntimeError(f"{self.source.entry}: {error.decode()}")

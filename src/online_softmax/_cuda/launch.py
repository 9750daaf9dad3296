"""Loaded kernels and their launches.  A small call is nothing but overhead, so everything that can be kept is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol, TypeVar

import torch
from cuda.bindings import driver
from cuda.core import Kernel, LaunchConfig, ObjectCode, Stream
from cuda.core import launch as _launch

from .compile import Source, cubin
from .geometry import Geometry
from .limits import Limits, device_limits

if not torch.backends.cuda.is_built():
    raise ImportError("this PyTorch was built without CUDA")

launch_on = _launch
"""(stream, *Loaded.ready(grid), *arguments), for one who knows that the stream is the device's current one."""

_current_stream = torch._C._cuda_getCurrentRawStream
_current_device = torch._C._cuda_getDevice
_EARLY_IN_GRAPHS = 12030  # the first driver that captures early launches
_CONFIGS_KEPT = 256  # grids of one kernel, each a LaunchConfig

_streams: dict[tuple[int, int], Stream] = {}  # every device's default stream has handle 0
_loaded: dict[tuple[int, Source, int, int, int, bool], Loaded] = {}
_lock = threading.Lock()
_thread = threading.local()  # a new thread has no CUDA context until something binds one


class Plan(Protocol):
    """A way to take rows: the kernels' shape, and dynamic shared memory a block."""

    @property
    def shape(self) -> Geometry: ...
    @property
    def shared(self) -> int: ...


AnyPlan = TypeVar("AnyPlan", bound=Plan)


def _check(result: tuple[Any, ...]) -> None:
    if result[0] != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"CUDA driver: {result[0].name}")


class Loaded:
    """A kernel on one device, with the block, cluster and shared memory it is launched with."""

    __slots__ = ("_cluster", "_configs", "_device", "_early", "_kernel", "_shared", "_threads", "resident")

    def __init__(self, device: int, source: Source, threads: int, cluster: int, shared: int, early: bool) -> None:
        self._device, self._threads, self._cluster, self._shared = device, threads, cluster, shared
        self._early = early and _can_be_early(device)
        self._kernel = ObjectCode.from_cubin(cubin(source, device_limits(device).arch)).get_kernel(source.entry)
        self._configs: dict[tuple[int, int | None], LaunchConfig] = {}
        attribute = driver.CUfunction_attribute
        handle = self._kernel.handle
        if shared:  # what is granted unasked, 48 KiB, has to hold the kernel's own variables too
            name = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _check(driver.cuKernelSetAttribute(name, shared, handle, device))
        if cluster > 8:
            name = attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            _check(driver.cuKernelSetAttribute(name, 1, handle, device))
        self.resident = self._resident()
        """Clusters (or blocks) that the device runs at once; 0 if it cannot run one."""

    def _resident(self) -> int:
        occupancy = self._kernel.occupancy
        if self._cluster > 1:
            return int(occupancy.max_active_clusters(self._config(1), stream=_stream(self._device)))
        blocks = occupancy.max_active_blocks_per_multiprocessor(self._threads, self._shared)
        return int(blocks) * device_limits(self._device).processors

    def _config(self, grid: int, threads: int | None = None) -> LaunchConfig:
        more: dict[str, Any] = {"cluster": self._cluster} if self._cluster > 1 else {}
        if self._early:
            more["programmatic_stream_serialization"] = True
        return LaunchConfig(grid=grid, block=threads or self._threads, shmem_size=self._shared, **more)

    def ready(self, grid: int, threads: int | None = None) -> tuple[LaunchConfig, Kernel]:
        """What `launch_on` takes between the stream and the arguments; fewer threads a block, if the kernel allows."""
        config = self._configs.get((grid, threads))
        if config is None:
            if len(self._configs) >= _CONFIGS_KEPT:
                self._configs.clear()
            config = self._configs[grid, threads] = self._config(grid, threads)
        return config, self._kernel

    def __call__(self, grid: int, *arguments: Any) -> None:
        """Launch `grid` clusters (or blocks) on the device's current stream.  Integers travel as 64 bits, floats as
        double."""
        if not getattr(_thread, "bound", False):
            _bind()
        device = self._device
        if _current_device() != device:  # nothing below may see another device's context, the configuration neither
            with torch.cuda.device(device):
                self(grid, *arguments)
            return
        launch_on(_stream(device), *self.ready(grid), *arguments)


@cache
def _can_be_early(device: int) -> bool:
    """Whether a launch on the device can begin before the one in front of it has ended."""
    known = hasattr(LaunchConfig, "programmatic_stream_serialization")
    error, version = driver.cuDriverGetVersion()
    _check((error,))
    return known and version >= _EARLY_IN_GRAPHS and torch.cuda.get_device_capability(device) >= (9, 0)


def _bind() -> None:
    torch.cuda.set_device(_current_device())
    _thread.bound = True


def stream_here(device: int) -> Stream | None:
    """The device's current stream, if this thread can launch on it as things are: `Loaded.__call__` always can."""
    if _current_device() != device or not getattr(_thread, "bound", False):
        return None
    return _streams.get((device, _current_stream(device))) or _stream(device)


@contextmanager
def stream_there(device: int) -> Iterator[Stream]:
    """The same for any thread and any current device: for the time of the block, all is as a launch needs it."""
    with torch.cuda.device(device):
        _bind()
        yield _stream(device)


def _stream(device: int) -> Stream:
    """The device's current stream; one object for each, because it remembers the device it belongs to."""
    key = device, _current_stream(device)
    stream = _streams.get(key)
    if stream is None:
        stream = _streams[key] = Stream.from_handle(key[1])
    return stream


def load(device: int, source: Source, threads: int, cluster: int = 1, shared: int = 0, early: bool = False) -> Loaded:
    """The kernel, compiled and loaded on first use.

    `early`: it may begin before the launch in front of it has ended, where the device can do that.  It then has to call
    wait_for_previous_launch (async.cuh): before it touches any memory, unless the launch in front is always one of ours
    that is not early itself, and so began when all before it had ended.
    """
    key = (device, source, threads, cluster, shared, early)
    kernel = _loaded.get(key)
    if kernel is None:
        _bind()
        with _lock, torch.cuda.device(device):
            kernel = _loaded.get(key)
            if kernel is None:
                kernel = _loaded[key] = Loaded(*key)
    return kernel


def load_first_fitting(
    device: int,
    plan_of: Callable[[Limits], AnyPlan],
    sources_of: Callable[[AnyPlan], tuple[Source, ...]],
    early: Callable[[AnyPlan], bool] = lambda _: False,
) -> tuple[tuple[Loaded, ...], AnyPlan]:
    """The kernels of the first plan that the device can run: with clusters half as large where it, or the part of it
    we have, does not grant the largest.  What is found depends on the plan and the kind of device alone."""
    limits = device_limits(device)
    while True:
        plan = plan_of(limits)
        shape = plan.shape
        each = shape.threads, shape.cluster, plan.shared, early(plan)
        loaded = tuple(load(device, source, *each) for source in sources_of(plan))
        if all(kernel.resident for kernel in loaded):
            return loaded, plan
        if not limits.largest_cluster:
            raise RuntimeError(f"the device cannot run {sources_of(plan)[0].file} with {shape}")
        limits = limits._replace(largest_cluster=shape.cluster // 2)  # 0: no block keeps a row, it is split


def loaded_count() -> int:
    """Kernels loaded in this process: tests count them."""
    return len(_loaded)

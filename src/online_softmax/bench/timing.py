"""Times calls in turn, one round of everyone after another, and gives each one's median."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from .case import Case
from .contestants import Contestant

CALLS_IN_A_ROUND = 200
CALLS_IN_A_GRAPH = 20
FLUSH_AT_LEAST = 2**29  # bytes: some 0.15 ms of writing on a fast GPU
FLUSHES = 4  # which together take longer than Python does for a forward and a backward


def medians(everyone: Sequence[Contestant], cases: Sequence[Case], rounds: int, seconds: float) -> dict[str, float]:
    """Seconds a call for each contestant: at least 3 rounds, then up to `rounds` while time lasts."""
    workload = cases[0].workload
    if workload.way == "call":
        measure = _call
    elif cases[0].x.device.type == "cuda":
        measure = _Graphs().replay if workload.way == "graph" else _Events(cases[0].x.device).measure
    else:
        measure = _cold
    times: dict[str, list[float]] = {contestant.library: [] for contestant in everyone}
    end = time.perf_counter() + seconds
    gc.disable()
    try:
        for done in range(rounds):
            if done >= 3 and time.perf_counter() > end:
                break
            for index, contestant in enumerate(everyone):
                case = cases[(done * len(everyone) + index) % len(cases)]
                times[contestant.library].append(measure(contestant, case))
    finally:
        gc.enable()
    return {library: statistics.median(found) for library, found in times.items()}


def _cold(contestant: Contestant, case: Case) -> float:
    """One call by the wall clock; the list of cases is longer than the caches."""
    prepared = contestant.prepare(case)
    start = time.perf_counter()
    answers = contestant.call(prepared)
    seconds = time.perf_counter() - start
    del answers
    return seconds


def _call(contestant: Contestant, case: Case) -> float:
    """A small call as Python makes it, many in a row."""
    prepared = contestant.prepare(case)
    cuda = case.x.device.type == "cuda"
    if cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS_IN_A_ROUND):
        contestant.call(prepared)
    if cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / CALLS_IN_A_ROUND


class _Events:
    """CUDA events around one call, after a write to more memory than the last cache holds.

    The write empties the cache of the inputs, and keeps the GPU busy while Python gets the call ready.
    """

    def __init__(self, device: torch.device) -> None:
        size = max(4 * torch.cuda.get_device_properties(device).L2_cache_size, FLUSH_AT_LEAST)
        self.flush = torch.empty(size, dtype=torch.int8, device=device)

    def measure(self, contestant: Contestant, case: Case) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        prepared = contestant.prepare(case)
        for _ in range(FLUSHES):
            self.flush.zero_()
        start.record()
        answers = contestant.call(prepared)
        end.record()
        end.synchronize()
        del answers
        return float(start.elapsed_time(end)) / 1000


class _Graphs:
    """A small call captured many times over in a CUDA graph, one graph a contestant."""

    def __init__(self) -> None:
        self.graphs: dict[str, torch.cuda.CUDAGraph] = {}

    def replay(self, contestant: Contestant, case: Case) -> float:
        if contestant.library not in self.graphs:
            self.graphs[contestant.library] = self._capture(contestant, case)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        self.graphs[contestant.library].replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000 / CALLS_IN_A_GRAPH

    @staticmethod
    def _capture(contestant: Contestant, case: Case) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                contestant.call(contestant.prepare(case))
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(CALLS_IN_A_GRAPH):
                contestant.call(contestant.prepare(case))
        graph.replay()
        return graph


def last_cache_bytes() -> int:
    """The size of the largest CPU cache; 32 MiB where the system does not tell."""
    sizes = [2**25]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        sizes.append(int(path.read_text().strip().rstrip("K")) * 1024)
    return max(sizes)

"""Runs workloads: makes the inputs, checks every answer, then times those that are right."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from . import case as cases
from . import timing
from .case import Case
from .compiling import Allowance
from .contestants import Contestant, contestants, yardsticks
from .memory import peak_extra
from .record import Record
from .tables import OURS
from .workload import Workload

COPIES_AT_MOST = 64


class Runner:
    """One run of the benchmark on one device."""

    def __init__(self, device: str, quick: bool, everywhere: bool = False) -> None:
        self.device = device
        self.rounds, self.seconds = (3, 0.5) if quick else (25, 2.0) if device == "cuda" else (15, 6.0)
        self.compiling = Allowance(device, quick, everywhere)

    def measure(self, workload: Workload) -> Record:
        """The workload's record: who was wrong, who could not, and the times of all others."""
        first = cases.make(workload, self.device)
        right = cases.truth(first)
        record: Record = {
            "record": "workload",
            **workload._asdict(),
            "traffic": workload.traffic,
            "seconds": {},
            "yardsticks": {},
            "memory": {},
            "error": {},
            "wrong": [],
            "refused": {},
        }
        everyone = [c for c in contestants(first) if self._passes(c, first, right, record)]
        if workload.way == "cold":
            everyone += yardsticks(self.device, workload.operation)
        found = timing.medians(everyone, self._copies(first), self.rounds, self.seconds)
        record["seconds"] = {library: found[library] for library in record["error"] if library in found}
        for name in "copy", "maximum", "product":
            times = [seconds for library, seconds in found.items() if library.startswith(name)]
            if times:
                record["yardsticks"][name] = min(times)
        return record

    def _passes(self, contestant: Contestant, case: Case, right: Sequence[torch.Tensor], record: Record) -> bool:
        """Whether a library's answer is right; what it was goes into the record."""
        library = contestant.library
        refusal = self.compiling.refusal(library, case.workload)
        if refusal is not None:
            record["refused"][library] = refusal
            return False
        start = time.perf_counter()
        try:
            answers, memory = self._first_call(contestant, case)
            error = cases.worst_error(case, answers, right)
        except Exception as problem:  # other libraries refuse in every way there is; the record tells how
            record["refused"][library] = f"{type(problem).__name__}: {problem}".splitlines()[0][:200]
            return False
        finally:
            self.compiling.spend(library, time.perf_counter() - start)
        record["error"][library] = error
        if memory is not None:
            record["memory"][library] = memory
        if not error <= cases.LIMITS[case.workload.dtype]:
            record["wrong"].append(library)
            return False
        return True

    def _first_call(self, contestant: Contestant, case: Case) -> tuple[list[torch.Tensor], int | None]:
        """Answers in memory that held NaN before, where the allocator gives that out again; and peak memory."""
        if self.device == "cuda":
            contestant.call(contestant.prepare(case))  # compiles and sets up; its memory is not the call's
        prepared = contestant.prepare(case)
        poison = torch.full_like(case.x, float("nan"))
        del poison
        if self.device != "cuda":
            return [torch.as_tensor(answer) for answer in contestant.call(prepared)], None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        answers = contestant.call(prepared)
        torch.cuda.synchronize()
        return answers, torch.cuda.max_memory_allocated() - before

    def _copies(self, first: Case) -> list[Case]:
        """Inputs enough to go round without a cache holding any; small calls keep one."""
        size = first.x.nbytes
        if first.workload.way != "cold" or self.device == "cuda":
            return [first]
        copies = min(-(-4 * timing.last_cache_bytes() // size), COPIES_AT_MOST)
        return [first, *(cases.copy(first) for _ in range(1, copies))]


def cpu_memory(workload: Workload) -> Record:
    """Peak extra memory of the workload for us and for torch, each in a process of its own."""
    memory = {}
    for library in (OURS,) if workload.variant == "inplace" else (OURS, "torch"):
        function = "online_softmax.bench.contestants:memory_call"
        memory[library] = peak_extra(function, workload=list(workload), library=library, rows=workload.rows)
    return {"record": "memory", **workload._asdict(), "memory": memory}

"""Climbs the ladder: checks every rung, times them in turn, and says how each compares."""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from . import check, cpu, cuda, yardsticks
from .rung import Arrays, Rung

DEVICES: dict[str, ModuleType] = {"cpu": cpu, "cuda": cuda}
# A rung slower than this is timed in the first rounds only.
SLOW_SECONDS, SLOW_ROUNDS = 0.3, 3

Progress = Callable[[str], None]


class WrongRungError(RuntimeError):
    """A rung that must be right gave a wrong answer: nothing is timed, no table is printed."""


class Measured(NamedTuple):
    """One rung, checked and timed."""

    name: str
    reads: str
    idea: str
    claim: str
    seconds: float
    relative: float
    """Speed, relative to naive."""
    of_copy: float
    """Time of a copy of the logits over the time of this."""
    error: float
    """The largest error found, relative to what the dtype allows: right up to 1."""


class Ladder(NamedTuple):
    """One shape's ladder."""

    device: str
    dtype: str
    rows: int
    columns: int
    setting: dict[str, Any]
    copy_seconds: float
    rungs: tuple[Measured, ...]

    def rung(self, name: str) -> Measured:
        """The rung of that name."""
        return next(rung for rung in self.rungs if rung.name == name)


def steps(device: str, compiled: bool = True) -> int:
    """How often `climb` reports progress."""
    everyone = len(DEVICES[device].rungs()) + len(yardsticks.yardsticks(compiled))
    return everyone + int(DEVICES[device].ROUNDS)


def climb(
    device: str, rows: int, columns: int, dtype: str, progress: Progress = lambda state: None, compiled: bool = True
) -> Ladder:
    """Check and time every rung on rows by columns logits; WrongRungError where a safe one is wrong."""
    module = DEVICES[device]
    everyone: list[Rung] = [*module.rungs(), *yardsticks.yardsticks(compiled)]
    check_planted(device, dtype, [rung for rung in everyone if rung.safe])
    arrays = module.random_arrays(rows, columns, dtype)
    errors = _check(everyone, arrays, dtype, progress)
    everyone = [rung for rung in everyone if rung.name in errors]
    times = _time(module, everyone, arrays, progress)
    copy, naive = times["copy"], times["naive"]
    return Ladder(
        device,
        dtype,
        rows,
        columns,
        module.describe(),
        copy,
        tuple(
            Measured(
                rung.name,
                rung.reads,
                rung.idea,
                rung.claim,
                times[rung.name],
                naive / times[rung.name],
                copy / times[rung.name],
                errors[rung.name],
            )
            for rung in everyone
        ),
    )


def check_planted(device: str, dtype: str, rungs: list[Rung]) -> None:
    """Check rungs on rows with -inf, +inf, NaN and outliers, of a length that no block divides."""
    if device == "cpu":
        logits, target = check.planted_rows()
        arrays = cpu.from_logits(logits.astype(dtype), target)
    else:  # long enough for the loops over eight elements a thread, and for what they leave
        arrays = cuda.from_logits(*check.planted_rows(20011), dtype)
    _check([rung for rung in rungs if "compile" not in rung.name], arrays, dtype, lambda state: None)


def _check(everyone: list[Rung], arrays: Arrays, dtype: str, progress: Progress) -> dict[str, float]:
    truth = check.truth(arrays)
    errors = {}
    for rung in everyone:
        arrays.result[...] = math.nan  # an element that is never written must not pass
        arrays.loss[...] = math.nan
        try:
            answer = rung.run(arrays)
        except Exception as problem:  # torch.compile needs a compiler, and says so in many ways
            if not rung.optional:
                raise
            progress(f"left out {rung.name}: {type(problem).__name__}")
            continue
        error = errors[rung.name] = check.error(arrays, answer, truth, dtype)
        if rung.safe and error > 1:
            raise WrongRungError(f"{rung.name} is wrong: its error is {error:.3g} times what {dtype} allows")
        progress(f"checked {rung.name}")
    return errors


def _time(module: ModuleType, everyone: list[Rung], arrays: Arrays, progress: Progress) -> dict[str, float]:
    """Seconds of each rung, and of a copy: medians over rounds in which everyone has a turn."""
    calls = {rung.name: _bind(rung, arrays) for rung in everyone}
    calls["copy"] = lambda: module.copy(arrays)
    times: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        for done in range(module.ROUNDS):
            for name, call in calls.items():
                if done < SLOW_ROUNDS or times[name][-1] < SLOW_SECONDS:
                    times[name].append(module.seconds(call))
            progress(f"timed {done + 1} of {module.ROUNDS} rounds")
    finally:
        gc.enable()
    return {name: statistics.median(found) for name, found in times.items()}


def _bind(rung: Rung, arrays: Arrays) -> Callable[[], Any]:
    return lambda: rung.run(arrays)

"""What the parts of distributed_h200.py share: which process this is, what was asked for, how to tell and to time."""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from online_softmax.bench.timing import FLUSH_AT_LEAST

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
Call = Callable[[], Any]


def arguments() -> argparse.Namespace:
    """What is asked for on the command line."""
    parser = argparse.ArgumentParser(description="The distributed functions on several devices.")
    parser.add_argument("--out", type=Path, help="write the lines to this file too")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--classes", type=int, default=128256, help="of all processes together")
    parser.add_argument("--tokens", type=int, default=32768, help="of each process, for ring attention")
    parser.add_argument("--seconds", type=float, default=100.0, help="end the program after so long, whatever it does")
    return parser.parse_args()


WANTED = arguments()
DEVICE = torch.device(WANTED.device, int(os.environ["LOCAL_RANK"]) if WANTED.device == "cuda" else None)


def say(**facts: object) -> None:
    """One result, on a line of its own."""
    if RANK:
        return
    line = json.dumps(facts)
    print(line, flush=True)
    if WANTED.out:
        with WANTED.out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


_flushed: list[torch.Tensor] = []


def flush() -> None:
    """Writes to more memory than the last cache holds, for more than a millisecond, in which Python gets a call ready:
    a training step's host, too, is ahead of its device."""
    if not _flushed:
        _flushed.append(torch.empty(FLUSH_AT_LEAST, dtype=torch.int8, device=DEVICE))
    for _ in range(10):
        _flushed[0].zero_()


def once(call: Call, ahead: bool = True) -> float:
    """Milliseconds of one call on this process; on an idle device, waiting for Python, unless the host is `ahead`."""
    dist.barrier()
    if DEVICE.type == "cpu":
        began = time.perf_counter()
        call()
        return (time.perf_counter() - began) * 1e3
    torch.cuda.synchronize()
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if ahead:
        flush()
    start.record()
    call()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop)


def milliseconds(calls: dict[str, Call], repeats: int = 10, ahead: bool = True) -> dict[str, float]:
    """Of each call the median over repeats, taken in turn, of the slowest process's time."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(2):
            call()
    for _ in range(repeats):
        for name, call in calls.items():
            slowest = torch.tensor(once(call, ahead), device=DEVICE)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            times[name].append(slowest.item())
    return {name: sorted(each)[len(each) // 2] for name, each in times.items()}


def watch(seconds: float) -> None:
    """Ends this process after so many seconds: a process that failed alone leaves the others in a collective."""

    def end() -> None:
        say(failed="time", seconds=seconds)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()

"""Runs every case of a module in a few processes on this machine, once, and tells how each one ended.

Over Gloo on the CPU, over NCCL with a GPU each ("cuda"), or all on one GPU ("cuda:0"), by way of the CPU (relay.py).
On a GPU the cases' tensors are made there unless they say where.
"""

from __future__ import annotations

import importlib
import inspect
import multiprocessing
import os
import pickle
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .relay import BEYOND, register

# Processes on the CPU are forked from one that has imported, once, what takes longer than most cases.
multiprocessing.set_forkserver_preload(["torch._dynamo", "torch.distributed.tensor", "online_softmax.distributed"])
FORKED = multiprocessing.get_context("forkserver")


def names_of(module: str, device: str = "cpu") -> list[str]:
    """The cases of a module: its functions case_…, in order."""
    found = importlib.import_module(module)
    names = [name for name, _ in inspect.getmembers(found, inspect.isfunction) if name.startswith("case_")]
    return [name for name in names if _backend(device) != "relay" or name not in BEYOND]


def _backend(device: str) -> str:
    return {"cpu": "gloo", "cuda": "nccl"}.get(device, "relay")


def run_all(module: str, size: int, folder: Path, device: str = "cpu") -> dict[str, str | None]:
    """Name of each case -> None, or what went wrong on which rank."""
    start = (module, size, str(folder), device)
    method = "forkserver" if device == "cpu" else "spawn"
    torch.multiprocessing.start_processes(_work, start, nprocs=size, join=True, start_method=method)
    ended: dict[str, str | None] = dict.fromkeys(names_of(module, device), "not run: an earlier case went wrong")
    for name in ended:
        texts = [pickle.loads((folder / f"{rank}.pickle").read_bytes()).get(name, ended[name]) for rank in range(size)]
        wrong = [f"rank {rank} of {size}:\n{text}" for rank, text in enumerate(texts) if text is not None]
        ended[name] = "\n".join(wrong) or None
    return ended


def run_modules(
    modules: Sequence[str], size: int, folders: Sequence[Path], device: str
) -> dict[str, dict[str, str | None]]:
    """Module -> how its cases ended; all modules at once, a folder each."""
    with ThreadPoolExecutor(len(modules)) as pool:
        results = pool.map(lambda module, folder: run_all(module, size, folder, device), modules, folders)
        return dict(zip(modules, results, strict=True))


def _work(rank: int, module: str, size: int, folder: str, device: str) -> None:
    torch.set_num_threads(1)
    more: dict[str, Any] = {}
    if device == "cuda":
        more["device_id"] = torch.device("cuda", rank)
    if device != "cpu":
        torch.cuda.set_device(rank if device == "cuda" else device)
        torch.set_default_device("cuda")
    if _backend(device) == "relay":
        register()
    dist.init_process_group(
        _backend(device),
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=20 if device == "cpu" else 60),  # the first call of a kernel compiles it
        **more,
    )
    cases = importlib.import_module(module)
    ended: dict[str, str | None] = {}
    for name in names_of(module, device):
        torch.manual_seed(7)
        try:
            getattr(cases, name)(rank, size)
            dist.barrier()
            ended[name] = None
        except BaseException:
            # The others may wait in a collective that this process never reaches: they end with an error of their own.
            ended[name] = traceback.format_exc()
            break
    Path(folder, f"{rank}.pickle").write_bytes(pickle.dumps(ended))
    os._exit(0)

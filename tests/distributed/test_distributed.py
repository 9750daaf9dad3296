"""Every distributed function equals its one-device result, with two and four processes over Gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from tests.distributed.processes import FORKED, names_of, run_all

from online_softmax import distributed

MODULES = tuple(f"tests.distributed.{name}_cases" for name in ("loss", "linear", "softmax", "ring", "error"))
SIZES = (2, 4)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """(module, size) -> how its cases ended; each pair of processes starts once."""
    found = {}

    def run(module, size):
        if (module, size) not in found:
            found[module, size] = run_all(module, size, tmp_path_factory.mktemp("processes"))
        return found[module, size]

    return run


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("module", "name"), [(module, name) for module in MODULES for name in names_of(module)])
def test_case(ended, module, name, size):
    text = ended(module, size)[name]
    assert text is None, text


def _calls_one_that_died(folder, rank):
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=10))
    dist.barrier()
    if rank == 1:
        os._exit(0)
    try:
        distributed.cross_entropy(torch.randn(4, 8), torch.zeros(4, dtype=torch.long))
    except RuntimeError:  # torch's own
        os._exit(3)


def test_a_process_that_dies_is_an_error_within_the_time_out(tmp_path):
    survivor, other = (FORKED.Process(target=_calls_one_that_died, args=(tmp_path, rank)) for rank in range(2))
    other.start()
    survivor.start()
    survivor.join(100)
    other.join(100)
    assert (survivor.exitcode, other.exitcode) == (3, 0)


ENDS = """
import os, sys, torch, torch.distributed as dist
from online_softmax import distributed
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/meeting", rank=0, world_size=1)
head = torch.zeros(8, 4, requires_grad=True)
step = torch.optim.SGD([head])
distributed.cross_entropy(torch.randn(4, 4) @ head.T, torch.arange(4)).backward()
dist.destroy_process_group()
names = (open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task"))
print(*names, sep="\\n")
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted as Linux lists them")
def test_no_thread_outlives_the_process_group(tmp_path):
    """One that does may abort the program as it ends.  A program of its own: what is imported first matters here."""
    done = subprocess.run(
        [sys.executable, "-c", ENDS, tmp_path], capture_output=True, text=True, timeout=100, check=True
    )
    assert not [name for name in done.stdout.split() if "gloo" in name], done.stdout


def test_without_a_process_group_the_error_says_what_to_call():
    with pytest.raises(RuntimeError, match="init_process_group"):
        distributed.cross_entropy(torch.randn(2, 3), torch.tensor([0, 1]))
    with pytest.raises(RuntimeError, match="torchrun"):
        distributed.softmax(torch.randn(2, 3))

"""Every distributed function equals its one-device result, with two and four processes over Gloo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.distributed.processes import names_of, run_all

MODULES = tuple(f"tests.distributed.{name}_cases" for name in ("loss", "softmax", "ring", "error"))
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


DIES = """
import datetime, os, sys, torch, torch.distributed as dist
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2,
                        timeout=datetime.timedelta(seconds=10))
from online_softmax import distributed
dist.barrier()
if rank == 1:
    os._exit(0)
try:
    distributed.cross_entropy(torch.randn(4, 8), torch.zeros(4, dtype=torch.long))
except RuntimeError as error:
    print("torch's own:", type(error).__name__)
    os._exit(3)
"""


def test_a_process_that_dies_is_an_error_within_the_time_out(tmp_path):
    command = [sys.executable, "-c", DIES]
    with (
        subprocess.Popen([*command, "0", str(tmp_path)], stdout=subprocess.PIPE, text=True) as survivor,
        subprocess.Popen([*command, "1", str(tmp_path)]),
    ):
        said, _ = survivor.communicate(timeout=100)
    assert survivor.returncode == 3
    assert "torch's own" in said


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
    """One that does may abort the program while the interpreter ends."""
    done = subprocess.run(
        [sys.executable, "-c", ENDS, tmp_path], capture_output=True, text=True, timeout=100, check=True
    )
    assert not [name for name in done.stdout.split() if "gloo" in name], done.stdout


def test_without_a_process_group_the_error_says_what_to_call():
    import torch

    from online_softmax import distributed

    with pytest.raises(RuntimeError, match="init_process_group"):
        distributed.cross_entropy(torch.randn(2, 3), torch.tensor([0, 1]))
    with pytest.raises(RuntimeError, match="torchrun"):
        distributed.softmax(torch.randn(2, 3))

"""What runs under compute-sanitizer reaches every kernel of the operations, on Hopper at least.  Needs no GPU."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.core")

SCRIPT = Path(__file__).parents[1] / "gpu" / "sanitize.py"

# The layer for CUDA tensors, given tensors that lie on the CPU.
AS_IF_THERE = f"""
import sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
import torch
torch.backends.cuda.is_built = lambda: True
torch._C._cuda_getCurrentRawStream = torch._C._cuda_getDevice = lambda *_: 0
from online_softmax import _cuda, _dispatch
from online_softmax._cuda import limits
limits.device_limits = lambda _: limits.limits_of((9, 0), 132)
_cuda.availability = lambda: None
_dispatch._PREFERRED["torch", "cpu"] = "cuda"
import sanitize
sanitize.rehearse("cpu")
"""


def test_every_kernel_is_reached():
    done = subprocess.run([sys.executable, "-c", AS_IF_THERE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    specification = importlib.util.spec_from_file_location("sanitize", SCRIPT)
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    every = script.entries()
    assert len(every) > 20
    assert set(done.stdout.split()) == every

"""The layer for CUDA tensors, given tensors that lie on the CPU, with kernels that do nothing.

`START` is what a process of its own runs first: it changes modules.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

START = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "gpu")!r})
import torch
torch.backends.cuda.is_built = lambda: True
torch._C._cuda_getCurrentRawStream = torch._C._cuda_getDevice = lambda *_: 0
from online_softmax import _cuda, _dispatch
from online_softmax._cuda import limits
limits.device_limits = lambda _: limits.limits_of((9, 0), 132)
_cuda.availability = lambda: None
_dispatch._PREFERRED["torch", "cpu"] = "cuda"
"""


def run(program: str) -> str:
    """What the program prints after that; it has to end well."""
    done = subprocess.run([sys.executable, "-c", START + program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout

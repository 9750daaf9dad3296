"""The examples run as their first lines say, with two processes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

# One after the other: programs started at the same moment may be given the same free port.
pytestmark = pytest.mark.xdist_group("torchrun")

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def torchrun():
    return "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"


def test_vocab_parallel(torchrun):
    said = run(*torchrun, str(EXAMPLES / "vocab_parallel.py"))
    first, alone = map(float, re.search(r"first loss ([\d.]+), on one device ([\d.]+)", said).groups())
    assert abs(first - alone) < 1e-5
    assert float(re.search(r"after 20 steps ([\d.]+)", said)[1]) < first - 1.0


def test_ring_attention(torchrun):
    said = run(*torchrun, str(EXAMPLES / "ring_attention.py"))
    assert float(re.search(r"from one device: ([\d.e+-]+)", said)[1]) < 1e-5


def test_attention_in_blocks():
    said = run(str(EXAMPLES / "attention_in_blocks.py"))
    assert float(re.search(r"at once: ([\d.e+-]+)", said)[1]) < 1e-13

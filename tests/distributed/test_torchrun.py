"""The examples, as their first lines say, and the benchmark of several devices, in small sizes, with two processes.

In one file, so that they run one after the other: programs started at the same moment may be given the same free port.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TORCHRUN = "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"


def run(*command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_vocab_parallel():
    said = run(*TORCHRUN, EXAMPLES / "vocab_parallel.py")
    first, alone = map(float, re.search(r"first loss ([\d.]+), on one device ([\d.]+)", said).groups())
    assert abs(first - alone) < 1e-5
    assert float(re.search(r"after 20 steps ([\d.]+)", said)[1]) < first - 1.0


def test_ring_attention():
    said = run(*TORCHRUN, EXAMPLES / "ring_attention.py")
    assert float(re.search(r"from one device: ([\d.e+-]+)", said)[1]) < 1e-5


def test_attention_in_blocks():
    said = run(EXAMPLES / "attention_in_blocks.py")
    assert float(re.search(r"at once: ([\d.e+-]+)", said)[1]) < 1e-13


def test_every_section_of_the_benchmark_runs_and_every_check_is_right(tmp_path):
    out = tmp_path / "results.jsonl"
    small = ["--device", "cpu", "--rows", "16", "--classes", "200", "--tokens", "32", "--seconds", "150"]
    run(*TORCHRUN, ROOT / "benchmarks" / "distributed_h200.py", *small, "--out", out)
    facts = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert not [fact for fact in facts if "failed" in fact]
    assert len([fact for fact in facts if "section" in fact]) == 6
    assert all(fact["right"] for fact in facts if "check" in fact)
    assert {"commit", "torch", "ranks"} <= facts[0].keys()
    timed = [fact["by"] for fact in facts if fact.get("time") == "cross_entropy forward + backward"]
    assert timed == ["online_softmax", "online_softmax, label_smoothing", "loss_parallel"]

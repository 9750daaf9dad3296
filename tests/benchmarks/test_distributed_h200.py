"""The benchmark of several devices runs over Gloo in small sizes, and finds every function right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
# One after the other: programs started at the same moment may be given the same free port.
pytestmark = pytest.mark.xdist_group("torchrun")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "distributed_h200.py"


def test_every_section_runs_and_every_check_is_right(tmp_path):
    out = tmp_path / "results.jsonl"
    small = ["--device", "cpu", "--rows", "16", "--classes", "200", "--tokens", "32", "--seconds", "150"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(SCRIPT)]
    done = subprocess.run([*command, *small, "--out", out], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    facts = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert not [fact for fact in facts if "failed" in fact]
    assert len([fact for fact in facts if "section" in fact]) == 6
    assert all(fact["right"] for fact in facts if "check" in fact)
    assert {"commit", "torch", "ranks"} <= facts[0].keys()
    timed = [fact["by"] for fact in facts if fact.get("time") == "cross_entropy forward + backward"]
    assert timed == ["online_softmax", "online_softmax, label_smoothing", "loss_parallel"]

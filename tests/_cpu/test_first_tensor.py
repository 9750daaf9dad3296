"""Whose threads work before and after a program's first tensor: each program has an interpreter of its own."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("parent", ["torch.softmax(x, 1)", "osm.softmax(x.numpy())", "osm.softmax(x)"])
def test_a_child_forked_before_or_after_the_first_tensor_works_on_its_own_threads(parent):
    """torch's OpenMP hangs in a child of a process that has used it, whoever else asks it for work."""
    program = f"""
import os, signal, sys, torch, online_softmax as osm
from online_softmax._cpu import _native
osm.set_num_threads(2)
x = torch.zeros(4200, 1000)
{parent}
child = os.fork()
if child == 0:
    signal.alarm(30)
    y = osm.softmax(x)
    os._exit(0 if not _native.uses_team() and float(y[0, 0]) == float(y[-1, -1]) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


def test_the_first_tensor_brings_torchs_threads():
    program = """
import numpy as np, torch, online_softmax as osm
from online_softmax._cpu import _native
osm.softmax(np.zeros((400, 1000), np.float32))
print(_native.uses_team())
osm.softmax(torch.zeros(400, 1000))
print(_native.uses_team())
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]

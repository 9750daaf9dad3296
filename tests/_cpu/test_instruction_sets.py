"""The builds of the kernels: which there are, how one is chosen, and that none has lent code to another."""

from __future__ import annotations

import platform
import subprocess
import sys

import numpy as np
import pytest

from online_softmax import _cpu
from online_softmax.ops.softmax import cpu


def test_the_best_is_chosen_at_import():
    program = "from online_softmax import _cpu; print(_cpu.instruction_set(), _cpu.instruction_sets()[0])"
    chosen, best = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert chosen == best


def test_every_machine_has_the_baseline_and_each_build_is_named():
    sets = _cpu.instruction_sets()
    assert sets[-1] == "baseline"
    if platform.machine() == "x86_64":
        assert sets == [name for name in ("avx512", "avx2", "baseline") if name in sets]
    assert _cpu.describe().startswith(f"{_cpu.instruction_set()}, {_cpu.num_threads()} threads, keeps ")


def test_each_build_runs_and_is_a_build_of_its_own():
    x = np.random.default_rng(0).standard_normal((50, 3000)).astype(np.float32)
    try:
        results = []
        for name in _cpu.instruction_sets():
            _cpu.use_instruction_set(name)
            assert _cpu.instruction_set() == name
            results.append(cpu.softmax(x, 1, np.float32))
        assert all(np.allclose(results[0], other, rtol=1e-5) for other in results)
        if "avx2" in _cpu.instruction_sets():  # it fuses products and sums, the baseline cannot
            assert not np.array_equal(results[-2], results[-1])
    finally:
        _cpu.use_instruction_set(_cpu.instruction_sets()[0])


def test_a_build_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="'altivec'"):
        _cpu.use_instruction_set("altivec")


def test_import_needs_no_torch():
    program = "import sys; from online_softmax.ops.softmax import cpu; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)

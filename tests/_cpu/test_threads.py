"""The thread pool: forks, callers on several threads, and how many threads it is given."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from tests.forking import succeeds_in_a_child

from online_softmax import _cpu
from online_softmax._cpu import _native, arrays
from online_softmax._cpu.arrays import threads_for
from online_softmax.ops.softmax import cpu


@pytest.fixture(autouse=True, params=["own pool", "torch's threads"])
def two_threads(request):
    """Two threads: those of the library's own pool, or of the OpenMP library that torch has loaded."""
    _cpu.set_num_threads(2)
    torch.zeros(()).softmax(0)
    if request.param == "own pool":
        _native.use_team(0)
    else:
        arrays.join_openmp()
        assert _native.uses_team()
    yield request.param
    _cpu._threads = None
    arrays.join_openmp()


def shared_work():
    """A result that several threads compute, a team where there is one, and the right result."""
    rows = 4200 if _native.uses_team() else 400
    x = np.random.default_rng(0).standard_normal((rows, 1000)).astype(np.float32)
    before, teams = _native.shared_jobs(), _native.team_jobs()
    y = cpu.softmax(x, 1, np.float32)
    assert _native.shared_jobs() == before + 1
    assert _native.team_jobs() == teams + _native.uses_team()
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return y, e / e.sum(1, keepdims=True)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("generations", [1, 2])
def test_a_forked_child_computes_and_exits(generations):
    shared_work()  # the parent's pool has threads now

    def computes():
        assert not _native.uses_team()  # which OpenMP would hang in
        result, truth = shared_work()
        return np.allclose(result, truth, rtol=1e-5)

    assert succeeds_in_a_child(computes if generations == 1 else lambda: succeeds_in_a_child(computes))
    shared_work()  # and the parent's pool works as before


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_forked_while_the_pool_works_computes_and_exits():
    stop = threading.Event()
    x = np.zeros((400, 1000), np.float32)

    def keep_busy():
        while not stop.is_set():
            cpu.softmax(x, 1, np.float32)

    worker = threading.Thread(target=keep_busy)
    worker.start()
    try:
        for _ in range(10):
            assert succeeds_in_a_child(lambda: np.allclose(*shared_work(), rtol=1e-5))
    finally:
        stop.set()
        worker.join()


def test_several_python_threads_at_once_get_right_answers():
    several = [np.random.default_rng(seed).standard_normal((4200, 1000)).astype(np.float32) for seed in range(4)]
    _cpu.set_num_threads(1)
    truth = [cpu.softmax(x, 1, np.float32) for x in several]
    _cpu.set_num_threads(2)

    def works(index):
        return all(np.array_equal(cpu.softmax(several[index], 1, np.float32), truth[index]) for _ in range(10))

    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(works, range(4)))


def test_the_interpreter_runs_on_while_a_kernel_works():
    x = np.broadcast_to(np.zeros(1, np.float16), (1, 2**28))
    ticks = []
    kernel = threading.Thread(target=cpu.logsumexp, args=(x, 1, np.float32))
    kernel.start()
    while kernel.is_alive():
        ticks.append(None)
    assert len(ticks) > 1000


def test_how_many_threads():
    _cpu._threads = None
    assert _cpu.num_threads() == len(os.sched_getaffinity(0))
    _cpu.set_num_threads(3)
    assert _cpu.num_threads() == 3
    small, large = np.zeros((8, 128), np.float32), np.zeros((400, 1000), np.float32)
    assert threads_for(small) == 1
    assert threads_for(large) == 3
    assert threads_for(torch.zeros(8, 128)) == 1
    assert threads_for(torch.zeros(400, 1000)) == torch.get_num_threads()
    for wrong, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match=rf"n is {wrong!r}; wanted "):
            _cpu.set_num_threads(wrong)


def test_small_work_wakes_no_thread_and_middling_work_no_team():
    before, teams = _native.shared_jobs(), _native.team_jobs()
    cpu.softmax(np.zeros((8, 128), np.float32), 1, np.float32)
    assert _native.shared_jobs() == before
    cpu.softmax(np.zeros((400, 1000), np.float32), 1, np.float32)
    assert _native.shared_jobs() == before + 1
    assert _native.team_jobs() == teams


def test_bits_do_not_depend_on_whose_threads_work():
    x = np.random.default_rng(0).standard_normal((3, 2_000_000)).astype(np.float32)
    here = cpu.softmax(x, 1, np.float32), cpu.logsumexp(x, 1, np.float32)
    _cpu.set_num_threads(1)
    assert np.array_equal(cpu.softmax(x, 1, np.float32), here[0])
    assert np.array_equal(cpu.logsumexp(x, 1, np.float32), here[1])

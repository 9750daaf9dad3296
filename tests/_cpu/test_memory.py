"""Memory of freed results: used again, never shared, limited, given back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from tests.forking import succeeds_in_a_child

import online_softmax as osm
from online_softmax._cpu import _native, arrays
from online_softmax.ops.softmax import cpu

MIB = 2**20
DEFAULT = _native.kept_memory_limit()


@pytest.fixture(autouse=True)
def nothing_kept():
    osm.set_kept_memory(0)
    osm.set_kept_memory(DEFAULT)
    yield
    osm.set_kept_memory(0)
    osm.set_kept_memory(DEFAULT)


def large(rows=512):
    return arrays.empty(np.empty(0), (rows, 4096), np.float32)


def address(x):
    return x.ctypes.data if isinstance(x, np.ndarray) else x.data_ptr()


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_a_freed_result_makes_room_for_the_next(kind):
    x = kind(np.random.default_rng(0).standard_normal((512, 4096)).astype(np.float32))
    first = osm.softmax(x)
    where, values = address(first), np.asarray(first).copy()
    del first
    assert _native.kept_memory() == 8 * MIB
    again = osm.softmax(x)
    assert address(again) == where
    assert np.array_equal(np.asarray(again), values)
    assert _native.kept_memory() == 0


def test_a_view_keeps_its_memory_from_others():
    first = large()
    view = first[3:5, ::2]
    view[...] = 7
    del first
    other = large()
    other[...] = 1
    assert (view == 7).all()
    assert _native.kept_memory() == 0


def test_every_element_is_written_over_what_was_there():
    x = np.random.default_rng(0).standard_normal((520, 4096)).astype(np.float32)
    x[0, :] = -np.inf
    x[1, 3] = np.nan
    clean = [function(x).copy() for function in (osm.softmax, osm.log_softmax)]
    for function, want in zip((osm.softmax, osm.log_softmax), clean, strict=True):
        waste = large(520)
        waste[...] = 12345
        del waste
        assert np.array_equal(function(x), want, equal_nan=True)


def test_memory_of_another_size_is_used_if_little_of_it_is_wasted():
    a = large(1000)
    where = address(a)
    del a
    assert address(large(900)) == where
    assert _native.kept_memory() > 0
    smaller = large(512)
    assert _native.kept_memory() > 0, "a block must not serve a result of half its size"
    del smaller


def test_results_start_at_huge_pages_and_small_ones_are_numpys_own():
    assert address(large()) % (2 * MIB) == 0
    assert arrays.empty(np.empty(0), (8, 128), np.float32).flags.owndata
    assert _native.kept_memory() > 0


def test_no_more_is_kept_than_allowed():
    results = [large() for _ in range(12)]
    results.clear()
    assert _native.kept_memory() == 8 * 8 * MIB, "at most 8 blocks"
    osm.set_kept_memory(20 * MIB)
    assert _native.kept_memory() == 16 * MIB
    results = [large(2048)]
    results.clear()
    assert _native.kept_memory() == 16 * MIB, "a block above the limit is given back at once"
    osm.set_kept_memory(0)
    assert _native.kept_memory() == 0
    results = [large()]
    results.clear()
    assert _native.kept_memory() == 0


@pytest.mark.parametrize(("wrong", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError), ("1", TypeError)])
def test_a_wrong_limit(wrong, error):
    with pytest.raises(error, match=rf"n_bytes is {wrong!r}; wanted "):
        osm.set_kept_memory(wrong)
    assert _native.kept_memory_limit() == DEFAULT


def test_more_than_there_is_raises_and_loses_nothing():
    kept = large()
    kept[...] = 3
    with pytest.raises(MemoryError):
        arrays.empty(np.empty(0), (2**50,), np.float64)
    assert (kept == 3).all()
    assert _native.kept_memory_limit() == DEFAULT


def test_threads_never_get_the_same_memory():
    def holds(mark):
        for _ in range(50):
            mine = large(256)
            mine[...] = mark
            if not (mine == mark).all():
                return False
        return True

    with ThreadPoolExecutor(4) as workers:
        assert all(workers.map(holds, range(4)))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_writes_to_its_own_copy():
    x = np.zeros((512, 4096), np.float32)
    parents = cpu.softmax(x, 1, np.float32)
    del parents
    assert succeeds_in_a_child(lambda: (cpu.softmax(x + 1, 1, np.float32) == 1 / 4096).all())
    assert (cpu.softmax(x, 1, np.float32) == 1 / 4096).all()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_forked_while_memory_is_taken_and_given_may_set_the_limit():
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            large(256)

    def sets_the_limit():
        osm.set_kept_memory(0)
        return _native.kept_memory() == 0 and large() is not None

    with ThreadPoolExecutor(1) as worker:
        worker.submit(keep_busy)
        try:
            for _ in range(20):
                assert succeeds_in_a_child(sets_the_limit, seconds=10)
        finally:
            stop.set()


def test_small_tensors_can_be_resized_as_torchs_own():
    y = osm.softmax(torch.randn(4, 4))
    assert y.resize_(64, 64).shape == (64, 64)

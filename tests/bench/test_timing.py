"""Medians of calls taken in turn, by the wall clock and by CUDA events."""

import types

import torch

from online_softmax.bench import case as cases
from online_softmax.bench import timing
from online_softmax.bench.contestants import Contestant
from online_softmax.bench.workload import Workload


def _recording(order, library):
    def call(prepared):
        order.append((library, prepared))
        return []

    return Contestant(library, lambda case: f"prepared {case.x.data_ptr()}", call)


def test_contestants_take_turns_and_go_round_the_copies():
    first = cases.make(Workload("softmax", 2, 3), "cpu")
    copies = [first, cases.copy(first), cases.copy(first)]
    order = []
    found = timing.medians([_recording(order, "a"), _recording(order, "b")], copies, rounds=4, seconds=60)
    assert [library for library, _ in order] == ["a", "b"] * 4
    assert [prepared for _, prepared in order[:3]] == [f"prepared {case.x.data_ptr()}" for case in copies]
    assert set(found) == {"a", "b"}
    assert all(seconds >= 0 for seconds in found.values())


def test_three_rounds_are_made_however_short_the_time():
    order = []
    timing.medians([_recording(order, "a")], [cases.make(Workload("softmax", 2, 3), "cpu")], rounds=9, seconds=-1)
    assert len(order) == 3


def test_a_small_call_is_timed_over_many(monkeypatch):
    monkeypatch.setattr(timing, "CALLS_IN_A_ROUND", 5)
    order = []
    case = cases.make(Workload("softmax", 2, 3, way="call"), "cpu")
    timing.medians([_recording(order, "a")], [case], rounds=3, seconds=60)
    assert len(order) == 15


class _Event:
    """A CUDA event on a clock that the test moves."""

    clock = 0.0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = _Event.clock

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return 1000 * (other.at - self.at)


def test_cuda_events_stand_around_the_call_alone(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", _Event)
    properties = types.SimpleNamespace(L2_cache_size=1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(timing, "FLUSH_AT_LEAST", 16)

    def prepare(case):
        _Event.clock += 100

    def call(prepared):
        _Event.clock += 0.25
        return []

    case = cases.make(Workload("softmax", 2, 3), "cpu")
    assert timing._Events(torch.device("cpu")).measure(Contestant("a", prepare, call), case) == 0.25


def test_the_last_cache_is_at_least_32_mebibytes():
    assert timing.last_cache_bytes() >= 2**25

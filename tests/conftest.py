"""What all tests share: the implementations and instruction sets this machine has, and how hypothesis draws."""

import importlib

import pytest
from hypothesis import HealthCheck, settings

from online_softmax._dispatch import availability

settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("repeatable")

ON_THE_CPU = [found.impl for found in availability() if found.available and found.impl in ("reference", "cpu")]


INSTRUCTION_SETS = importlib.import_module("online_softmax._cpu").instruction_sets() if "cpu" in ON_THE_CPU else []


@pytest.fixture(params=INSTRUCTION_SETS)
def instruction_set(request):
    """Every instruction set that the native kernels are compiled for and this machine has, one after the other."""
    from online_softmax import _cpu

    _cpu.use_instruction_set(request.param)
    assert _cpu.instruction_set() == request.param
    yield request.param
    _cpu.use_instruction_set(INSTRUCTION_SETS[0])


@pytest.fixture(params=ON_THE_CPU)
def impl(request):
    """Every implementation for CPU arrays that can run here."""
    return request.param


@pytest.fixture(params=["numpy", "torch"])
def kind(request):
    """The two kinds of array with kernels of their own; `tests.arrays.make` builds either."""
    return request.param

"""What all tests share: the implementations and instruction sets this machine has, and how hypothesis draws."""

import importlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("repeatable")

# Of several test processes each takes a file at a time (`--dist loadfile`), in this order: what takes longest comes
# first, so that they end together.
LONGEST = (
    "cuda/test_compiles.py",
    "workshop/test_workshop_in_a_browser.py",
    "distributed/test_torchrun.py",
    "distributed/test_distributed.py",
    "ops/attention/test_attention.py",
    "_cpu/test_first_tensor.py",
    "_cpu/test_vectorised.py",
    "ops/cross_entropy/test_cpu.py",
    "ops/softmax/test_values.py",
)


def pytest_collection_modifyitems(items):
    order = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    assert all(path.exists() for path in order)
    items.sort(key=lambda item: order.get(item.path, len(order)))


try:
    INSTRUCTION_SETS = importlib.import_module("online_softmax._cpu").instruction_sets()
except ImportError:
    INSTRUCTION_SETS = []
ON_THE_CPU = ["reference", "cpu"] if INSTRUCTION_SETS else ["reference"]


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

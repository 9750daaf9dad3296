"""What all tests share: the implementations this machine has, and how hypothesis draws."""

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


@pytest.fixture(params=ON_THE_CPU)
def impl(request):
    """Every implementation for CPU arrays that can run here."""
    return request.param


@pytest.fixture(params=["numpy", "torch"])
def kind(request):
    """The two kinds of array with kernels of their own; `tests.arrays.make` builds either."""
    return request.param

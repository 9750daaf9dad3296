"""The emulated device, one for a session; its kernels lie in a folder that all of a session's processes share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def builder_folder(tmp_path_factory):
    from tests.cuda.emulator.build import compiler

    if compiler() is None:
        pytest.skip("CUDA kernels are emulated with g++ 12 or newer on Linux")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "emulated"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def only_device(builder_folder):
    from tests.cuda.emulator.build import Builder
    from tests.cuda.emulator.launch import Device

    return Device(Builder(builder_folder))


@pytest.fixture
def device(only_device):
    """As it is at first; what is allocated starts as NaN."""
    from torch._C import _set_deterministic_algorithms as deterministic  # torch's own imports its compiler: seconds

    only_device.reset()
    deterministic(True, warn_only=True)
    yield only_device
    deterministic(False, warn_only=False)

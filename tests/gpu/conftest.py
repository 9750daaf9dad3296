"""Tests that need a GPU: skipped without one.  Kernels are compiled ahead, all processors at once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    if not torch.cuda.is_available():
        for item in here:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    elif len(here) > 10 and "PYTEST_XDIST_WORKER" not in os.environ:
        _compile({item.path.name for item in here})


def _compile(files: set[str]) -> None:
    """What the tests of these files need."""
    import prebuild
    import rehearsal

    from online_softmax._cuda.limits import device_limits

    limits = device_limits(0)
    found = prebuild.device_sources(limits)
    if "test_devices.py" in files and torch.cuda.device_count() > 1:
        found |= rehearsal.sources(rehearsal.MODULES, 2)
    if files != {"test_devices.py"}:
        found |= prebuild.softmax_sources(limits) | prebuild.cross_entropy_sources(limits)
    prebuild.compile_all(found, limits.arch)

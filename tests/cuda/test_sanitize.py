"""What runs under compute-sanitizer reaches every kernel of the operations, on Hopper at least.  Needs no GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.core")

from tests.cuda.as_if_there import run  # noqa: E402

SCRIPT = Path(__file__).parents[1] / "gpu" / "sanitize.py"


def test_every_kernel_is_reached():
    said = run('import sanitize\nsanitize.rehearse("cpu")')
    specification = importlib.util.spec_from_file_location("sanitize", SCRIPT)
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    every = script.entries()
    assert len(every) > 20
    assert set(said.split()) == every

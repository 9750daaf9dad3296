"""The distributed functions of two processes that share one device, by way of the CPU: what their kernels compute."""

from __future__ import annotations

import pytest
from cases import DEVICE
from rehearsal import MODULES
from tests.distributed.processes import names_of, run_modules

SHARED = f"{DEVICE}:0"


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    return run_modules(MODULES, 2, [tmp_path_factory.mktemp("processes") for _ in MODULES], SHARED)


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module in MODULES for name in names_of(module, SHARED)]
)
def test_distributed_functions_on_one_device(ended, module, name):
    text = ended[module][name]
    assert text is None, text

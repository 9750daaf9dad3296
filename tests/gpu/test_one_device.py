"""The distributed functions of two processes that share one device, by way of the CPU: what their kernels compute."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from cases import DEVICE
from rehearsal import MODULES
from tests.distributed.processes import names_of, run_all

SHARED = f"{DEVICE}:0"


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Module -> how its cases ended; two processes each, all at once."""
    folders = [tmp_path_factory.mktemp("processes") for _ in MODULES]
    with ThreadPoolExecutor(len(MODULES)) as pool:
        results = pool.map(lambda module, folder: run_all(module, 2, folder, SHARED), MODULES, folders)
        return dict(zip(MODULES, results, strict=True))


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module in MODULES for name in names_of(module, SHARED)]
)
def test_distributed_functions_on_one_device(ended, module, name):
    text = ended[module][name]
    assert text is None, text

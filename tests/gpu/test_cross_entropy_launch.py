"""Which kernel of cross-entropy takes a row on the GPU, where shared memory or clusters run out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from cases import DEVICE, random_rows
from cross_entropy_cases import OPTIONS, check

from online_softmax.ops.cross_entropy.switches import Switches

if torch.cuda.is_available():
    from online_softmax._cuda import launch
    from online_softmax.ops.cross_entropy import kernels


@pytest.mark.parametrize("classes", [16385, 40000, 65537])
def test_blocks_whose_words_take_48_kib(classes):
    # 48 KiB are granted unasked; they must hold the words and the kernel's own variables together.
    x = random_rows(3, classes, torch.float32)
    check(x, torch.randint(0, classes, (3,), device=DEVICE), None, OPTIONS[0])


@pytest.mark.parametrize("largest", [8, 2, 1, 0])
def test_clusters_that_a_device_does_not_grant_are_not_launched(monkeypatch, largest):
    real = launch.load

    def load(device, source, threads, cluster=1, shared=0, early=False):
        file_keeps_rows = source.file.endswith(("/cuda.cu", "/staged.cu", "/softcap.cu"))
        refused = file_keeps_rows and cluster > largest
        return SimpleNamespace(resident=0) if refused else real(device, source, threads, cluster, shared, early)

    monkeypatch.setattr(launch, "load", load)
    kernels._kernels.cache_clear()
    try:
        x = random_rows(3, 40000, torch.float32)
        check(x, torch.randint(0, 40000, (3,), device=DEVICE), None, OPTIONS[0])
        _, plan = kernels._kernels(0, x.dtype, 10000, Switches(torch.int64, *[False] * 6, True))
        split = plan.file == "split.cu"
        assert split or plan.shape.cluster <= largest
        assert split == (largest == 0)  # one block can hold this row
    finally:
        kernels._kernels.cache_clear()

"""Sharded losses on CUDA tensors, but for what the kernels compute: autograd and what is saved.  Needs no GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.core")

from tests.cuda.as_if_there import run  # noqa: E402

PROGRAM = """
import os
import torch.distributed as dist
from rehearsal import without_kernels
found = without_kernels()
dist.init_process_group("gloo", init_method="file://{meeting}", rank=0, world_size=1)
from online_softmax import distributed
for weight in (None, torch.rand(50)):
    for options in ({{}}, {{"label_smoothing": 0.1}}, {{"reduction": "none"}}):
        x, h, head = (torch.randn(*shape, requires_grad=True) for shape in ((6, 50), (6, 8), (50, 8)))
        target = torch.randint(50, (6,))
        for loss, leaves in (
            (distributed.cross_entropy(x, target, weight, **options), (x,)),
            (distributed.linear_cross_entropy(h, head, target, weight=weight, chunk_rows=4, **options), (h, head)),
        ):
            assert loss.shape == ((6,) if options.get("reduction") else ())
            loss.sum().backward()
            assert all(leaf.grad.shape == leaf.shape for leaf in leaves)
        loss = distributed.cross_entropy(x, target, weight, **options)
        target += 1
        try:
            loss.sum().backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
        else:
            raise AssertionError("a target that is read again was written to")
print(*sorted({{source.entry for source in found if source.file.startswith("distributed")}}), flush=True)
os._exit(0)
"""


def test_losses_and_what_is_saved_for_backward(tmp_path):
    assert run(PROGRAM.format(meeting=tmp_path / "meeting")).split() == ["part_columns", "whole_rows"]

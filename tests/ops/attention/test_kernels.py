"""The CUDA kernels of merging compile, for stacked and listed partial results of every alignment; needs no GPU."""

import pytest
import torch

pytest.importorskip("cuda.core")

from online_softmax._cuda.compile import build
from online_softmax.ops.attention.kernels import Shape, source

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


@pytest.mark.parametrize(
    "shape",
    [
        Shape(BF16, F32, 8, 8, False, 0, 0),
        Shape(BF16, F32, 8, 2, False, 2, 0),
        Shape(F16, F32, 1, 4, True, 3, 0),
        Shape(F32, F64, 4, 8, False, 32, 0),
        Shape(BF16, F32, 8, 4, False, 0, 16),
        Shape(F64, F64, 1, 4, False, 5, 4),
    ],
)
def test_compiles(shape):
    assert build(source(shape), "sm_90")

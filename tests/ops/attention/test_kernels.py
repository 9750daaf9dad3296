"""The CUDA kernels of merging compile, for stacked and listed partial results of every alignment; needs no GPU."""

import io

import pytest
import torch

pytest.importorskip("cuda.core")

from online_softmax._cuda.compile import build
from online_softmax.ops.attention.kernels import shape_of, source

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64

# element, compute, size, offset of the rows, wide, partial results, stacked, backward
DEFAULTS = [
    (element, F32, size, 0, False, count, stacked, backward)
    for element, size in ((BF16, 128), (F32, 128), (F16, 64), (BF16, 96))
    for count, stacked in ((2, False), (4, False), (8, False), (8, True), (32, True))
    for backward in (False, True)
]
OTHERS = [
    (F16, F32, 7, 0, False, 3, False, False),
    (F16, F32, 128, 2, True, 3, False, False),
    (BF16, F32, 1024, 0, False, 5, True, False),
    (BF16, F32, 1024, 0, False, 5, False, True),
    (F32, F64, 128, 0, False, 32, False, False),
    (BF16, F32, 128, 0, False, 32, False, True),
    (F64, F64, 33, 0, False, 5, False, True),
    (F32, F32, 1, 0, False, 40, True, True),
]


@pytest.mark.parametrize("what", OTHERS)
def test_compiles(what):
    assert build(source(shape_of(*what)), "sm_90")


def test_no_default_spills_registers():
    for what in DEFAULTS:
        log = io.StringIO()
        build(source(shape_of(*what)), "sm_90", log)
        assert " 0 bytes spill stores" in log.getvalue(), what


@pytest.mark.parametrize(
    ("element", "size", "offset", "width"),
    [
        (F16, 128, 0, 8),
        (F16, 100, 0, 4),
        (BF16, 50, 0, 2),
        (F16, 7, 0, 1),
        (F32, 50, 0, 2),
        (F16, 128, 4, 2),
        (F64, 48, 8, 1),
    ],
)
def test_loads_are_as_wide_as_rows_are_aligned(element, size, offset, width):
    shape = shape_of(element, F64 if element == F64 else F32, size, offset, False, 2, False, False)
    assert shape.width == width

"""Conversion between array dtypes and the compute dtype, seen through rows of one element: their logsumexp is x."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from online_softmax.ops.softmax import cpu


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("to", [torch.float32, torch.float64])
def test_every_16_bit_number_is_widened_exactly(instruction_set, dtype, to):
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    y = cpu.logsumexp(x[:, None], 1, to)
    assert torch.equal(torch.isnan(y), torch.isnan(x))
    assert torch.equal(y[~torch.isnan(x)], x[~torch.isnan(x)].to(to))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_results_are_rounded_to_the_nearest_ties_to_even(instruction_set, dtype):
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    every = every[torch.isfinite(every)].float()
    random = torch.from_numpy(np.random.default_rng(0).integers(0, 2**32, 200_000, np.uint32).view(np.float32))
    halfway = (every + torch.nextafter(every.to(dtype), torch.tensor(torch.inf, dtype=dtype)).float()) / 2
    edges = torch.tensor(
        [65504.0, 65519.99, 65520.0, 65536.0, 3.4e38, 2.0**-24, 2.0**-25, 1.0001 * 2.0**-25, torch.inf]
    )
    x = torch.cat([every, random[torch.isfinite(random)], halfway[torch.isfinite(halfway)], edges, -edges])
    y = cpu.logsumexp(x[:, None], 1, dtype)
    assert torch.equal(y, x.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_doubles_are_rounded_once(instruction_set, dtype):
    step = torch.finfo(dtype).eps
    # Just beside a tie: rounding to float first would lose on which side.
    beside = [
        1 + step / 2 + 1e-12,
        1 + step / 2 - 1e-12,
        1 + 3 * step / 2 - 1e-12,
        -(1 + step / 2 + 1e-12),
        1 + step / 2,
    ]
    x = torch.tensor(beside, dtype=torch.float64)
    want = torch.tensor([1 + step, 1.0, 1 + step, -(1 + step), 1.0], dtype=torch.float64)
    assert torch.equal(cpu.logsumexp(x[:, None], 1, dtype).double(), want)

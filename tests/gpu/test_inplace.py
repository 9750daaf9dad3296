"""Gradients that take the logits' memory, wherever it starts."""

from __future__ import annotations

import pytest
import torch
from cases import DEVICE, DTYPES, EPS, random_rows

import online_softmax as osm


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "classes"), [(1, 1), (2, 3), (5, 1001), (3, 50257)])
def test_scaling_a_gradient_that_starts_off_16_bytes(dtype, rows, classes):
    whole = random_rows(rows + 1, classes, dtype).contiguous()
    target = torch.zeros(rows, dtype=torch.int64, device=DEVICE)
    leaf = whole[1:].clone().requires_grad_()
    (osm.cross_entropy(leaf, target) * 0.5).backward()

    taken = []
    logits = whole.clone().requires_grad_() * 1.0
    part = logits[1:]
    part.register_hook(taken.append)
    before = logits.detach()[0].clone()
    (osm.cross_entropy(part, target, inplace=True) * 0.5).backward()
    # Where a row starts decides which threads share a maximum: exp(x - m) of a rounded difference is up to |x - m| / 2
    # units off, otherwise on either side.
    distance = (whole[1:].amax(1, keepdim=True) - whole[1:]).double()
    allowed = (8 + distance) * EPS[dtype] * leaf.grad.double().abs() + 2 * torch.finfo(dtype).smallest_normal * EPS[
        dtype
    ]
    assert ((taken[0].double() - leaf.grad.double()).abs() <= allowed).all()
    assert torch.equal(logits.detach()[0], before)

"""After warm_up nothing is left to compile or to load."""

from __future__ import annotations

import pytest
import torch
from cases import DEVICE, DTYPES, random_rows

import online_softmax as osm

if torch.cuda.is_available():
    from online_softmax._cuda.launch import loaded_count

ALL_OPTIONS = {"label_smoothing": 0.1, "scale": 0.5, "softcap": 20.0, "z_loss": 1e-3}


def training_step(x, target, weight=None, **options):
    """Loss and gradient; with aux the loss is the first of the two."""
    leaf = x.clone().requires_grad_()
    result = osm.cross_entropy(leaf, target, weight, **options)
    loss = result[0] if options.get("return_aux") else result
    loss.backward(torch.full_like(loss, 0.5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_and_losses(dtype):
    osm.warm_up([1234], dtypes=[dtype])
    before = loaded_count()
    x = random_rows(5, 1234, dtype).contiguous()
    for function in (osm.softmax, osm.log_softmax, osm.logsumexp):
        leaf = x.clone().requires_grad_()
        y = function(leaf, -1)
        y.backward(torch.ones_like(y))
    target = torch.zeros(5, dtype=torch.int64, device=DEVICE)
    for reduction in ("mean", "none"):
        training_step(x, target, reduction=reduction)
        osm.cross_entropy(x, target, reduction=reduction)
    osm.cross_entropy_with_grad(x, target)
    assert loaded_count() == before


@pytest.mark.parametrize("length", [1236, 50257])
@pytest.mark.parametrize("kind", [torch.int32, torch.int64, torch.float32])
def test_options_and_targets_of_every_kind(kind, length):
    osm.warm_up(
        [length],
        dtypes=[torch.bfloat16],
        operations=["cross_entropy"],
        target_dtype=kind,
        weight=True,
        return_aux=True,
        **ALL_OPTIONS,
    )
    before = loaded_count()
    x = random_rows(5, length, torch.bfloat16).contiguous()
    shape = (5, length) if kind.is_floating_point else (5,)
    target, weight = torch.zeros(shape, dtype=kind, device=DEVICE), torch.ones(length, device=DEVICE)
    for reduction in ("mean", "none"):
        training_step(x, target, weight, reduction=reduction, return_aux=True, **ALL_OPTIONS)
    assert loaded_count() == before


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_merging_partial_results(count):
    osm.warm_up([64], dtypes=[torch.float16], operations=["merge_attention"], partials=[count])
    before = loaded_count()
    outs = torch.zeros(count, 7, 64, dtype=torch.float16, device=DEVICE, requires_grad=True)
    lses = torch.zeros(count, 7, device=DEVICE, requires_grad=True)
    osm.merge_attention(outs, lses)[0].sum().backward()
    uneven = [[x.detach()[0].clone() for _ in range(count)] for x in (outs, lses)]
    for tensors in uneven:
        tensors[:2] = tensors[1::-1]
        for x in tensors:
            x.requires_grad_()
    osm.merge_attention(*uneven)[0].sum().backward()
    assert loaded_count() == before


def test_backward_is_warmed_up_under_no_grad_and_inference_mode_too():
    with torch.inference_mode():
        osm.warm_up([777], dtypes=[torch.float32], operations=["softmax"])
    before = loaded_count()
    leaf = random_rows(3, 777, torch.float32).contiguous().requires_grad_()
    osm.softmax(leaf).sum().backward()
    assert loaded_count() == before


def test_a_device_that_is_not_there():
    with pytest.raises(ValueError, match="CUDA devices, numbered from 0"):
        osm.warm_up([10], device=f"cuda:{torch.cuda.device_count()}")

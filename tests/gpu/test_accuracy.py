"""The rule for results, on a thousand rows of each length, beside torch on the same GPU.

The worst error against float64, in units in the last place of max(|result|, |m|), m the row's maximum, is at most
torch's worst on the same rows plus two.  The CPU's tests hold to the same rule, with SciPy as a second peer
(tests/tolerances.py).
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from cases import DEVICE, DTYPES, LONG, ONCE, errors, exact, lengths, random_rows, thousand_rows
from tests.tolerances import assert_no_worse, worst_ulps

import online_softmax as osm

NAMES = ("softmax", "log_softmax", "logsumexp")
NARROW = DTYPES[:3]  # fp64 has no better truth on the GPU


def worst(measured):
    """The worst of ours and of torch's over several pieces."""
    ours, peers = zip(*measured, strict=True)
    return max(ours), max(peers)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_rows_of_every_length(name, dtype):
    function = getattr(osm, name)
    for length in [*lengths(dtype), *LONG["shared memory to the brim, then split"]]:
        pieces = thousand_rows(length, dtype)
        ours, peer = worst(errors(name, x, function(x, -1)) for x in pieces)
        assert_no_worse(ours, peer)
        assert dtype == torch.float32 or ours <= ONCE, (length, ours)


@pytest.mark.parametrize(("length", "height"), [(3, 3e6), (64, 700), (300, 3e6), (5000, -80000), (50257, 1e4)])
@pytest.mark.parametrize("name", NAMES)
def test_rows_far_from_zero(name, length, height):
    function = getattr(osm, name)
    pieces = (x + height for x in thousand_rows(length, torch.float32))
    assert_no_worse(*worst(errors(name, x, function(x, -1)) for x in pieces))


@pytest.mark.parametrize("length", [33, 1000, 5000])
@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_columns(name, length):
    x = random_rows(length, 1024, torch.float32).contiguous()
    assert_no_worse(*errors(name, x, getattr(osm, name)(x, 0), 0))


@pytest.mark.parametrize("height", [0.0, 700.0, 3e6, -80000.0])
@pytest.mark.parametrize("classes", [3, 64, 1000, 5000, 50257, 262144, 1000003])
def test_losses(classes, height):
    def pieces():
        for x in thousand_rows(classes, torch.float32):
            x = x + height
            target = torch.randint(classes, x.shape[:1], device=DEVICE)
            logs, m = exact("log_softmax", x)
            truth = -logs.gather(1, target[:, None])[:, 0]
            found = osm.cross_entropy(x, target, reduction="none"), F.cross_entropy(x, target, reduction="none")
            yield tuple(worst_ulps(losses, truth, m[:, 0]) for losses in found)

    assert_no_worse(*worst(pieces()))

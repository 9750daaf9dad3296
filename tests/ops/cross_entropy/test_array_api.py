"""Losses of arrays of a library that has the array-API standard and nothing else."""

import itertools

import array_api_strict as xp
import numpy as np
import pytest
from tests.ops.cross_entropy.common import IGNORED, indices, logits, probabilities
from tests.tolerances import close

import online_softmax as osm

X, W = logits(kind="numpy"), np.array([0.5, 1.0, 2.0, 0.0, 3.0])


def plain(x):
    return np.asarray(x)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(
    "options", [{}, {"label_smoothing": 0.1, "z_loss": 0.2}, {"scale": 0.5, "softcap": 2.0}], ids=lambda o: "+".join(o)
)
def test_values_and_gradients_are_those_of_numpy(options, reduction):
    targets = (indices(ignored=(1,), kind="numpy"), probabilities(kind="numpy"))
    for t, weight in itertools.product(targets, (None, W)):
        how = dict(options, reduction=reduction)
        strict = (xp.asarray(X), xp.asarray(t), None if weight is None else xp.asarray(weight))
        (loss, aux), gradient = osm.cross_entropy_with_grad(*strict, return_aux=True, **how)
        (want, want_aux), want_gradient = osm.cross_entropy_with_grad(
            X, t, weight, return_aux=True, impl="reference", **how
        )
        assert isinstance(gradient, type(strict[0]))
        close(plain(loss), want, 8)
        close(plain(gradient), want_gradient, 16, atol=1e-16)
        for got, wanted in zip(aux, want_aux, strict=True):
            close(plain(got).astype(np.float64), wanted, 8, atol=1e-15)


def test_float32_spatial_and_unbatched_inputs():
    x = logits(24, kind="numpy", dtype="float32").reshape(2, 3, 4, 5).transpose(0, 3, 1, 2)
    t = indices(24, kind="numpy").reshape(2, 3, 4)
    loss = osm.cross_entropy(xp.asarray(x.copy()), xp.asarray(t), reduction="none")
    assert loss.dtype == xp.float32
    close(plain(loss), osm.cross_entropy(x, t, reduction="none", impl="reference"), 4)
    close(plain(osm.cross_entropy(xp.asarray([0.0, 0.0]), xp.asarray(1))), np.log(2), 2)


def test_items_ignored_batches_and_empty_batches():
    close(plain(osm.cross_entropy(xp.asarray(X), xp.asarray(indices(kind="numpy")), num_items=4)),
          osm.cross_entropy(X, indices(kind="numpy"), num_items=4), 4)  # fmt: skip
    assert np.isnan(plain(osm.cross_entropy(xp.asarray(X), xp.full((6,), IGNORED))))
    assert np.isnan(plain(osm.cross_entropy(xp.zeros((0, 3)), xp.zeros((0,), dtype=xp.int64))))


def test_errors_are_the_same():
    with pytest.raises(IndexError, match=r"target\[1\] is 5"):
        osm.cross_entropy(xp.asarray(X), xp.asarray([0, 5, 0, 0, 0, 0]))
    with pytest.raises(ValueError, match="impl is 'cpu'"):
        osm.cross_entropy(xp.asarray(X), xp.asarray(indices(kind="numpy")), impl="cpu")
    with pytest.raises(ValueError, match="inplace"):
        osm.cross_entropy(xp.asarray(X), xp.asarray(indices(kind="numpy")), inplace=True)

"""Temporaries stay small beside the array, whatever its size."""

import tracemalloc

import numpy as np
import pytest

import online_softmax as osm

X = np.random.default_rng(0).normal(size=(3000, 2000)).astype(np.float32)
T = np.arange(3000) % 2000


def peak(call):
    """Bytes allocated at the worst moment of a call, without its result's own."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_into_an_array_allocates_little(name, impl):
    out = np.empty_like(X)
    assert peak(lambda: getattr(osm, name)(X, out=out, impl=impl)) < X.nbytes / 3


def test_logsumexp_along_either_axis_allocates_little(impl):
    for axis in (0, 1):
        assert peak(lambda axis=axis: osm.logsumexp(X, axis, impl=impl)) < X.nbytes / 3


def test_a_loss_allocates_little_and_its_gradient_one_array(impl):
    assert peak(lambda: osm.cross_entropy(X, T, label_smoothing=0.1, return_aux=True, impl=impl)) < X.nbytes / 2
    assert peak(lambda: osm.cross_entropy_with_grad(X, T, impl=impl)) < X.nbytes * 1.5

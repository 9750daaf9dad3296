"""A mean over rows that weigh nothing together: NaN as torch's while rows are kept, no gradient where none is."""

import numpy as np
import pytest
import torch
from tests.arrays import float64, make
from tests.ops.cross_entropy.common import IGNORED

import online_softmax as osm

X = [[0.0, 1.0, -2.0], [3.0, 0.5, 0.0], [1.0, 1.0, 2.0]]
WEIGHTS = {
    "none on the target": [0.0, 1.0, 1.0],
    "none at all": [0.0, 0.0, 0.0],
    "nothing together": [1.0, -1.0, 2.0],
}
OPTIONS = pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"z_loss": 0.1}, {"softcap": 5.0}])
DTYPES = pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])


@OPTIONS
@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS.keys())
def test_loss_and_gradient_are_nan_where_kept_rows_weigh_nothing(weight, options, kind, impl):
    targets = [0, 1, IGNORED] if weight[1] < 0 else [0, 0, IGNORED]
    x, t, w = make(kind, X), make(kind, targets, "int64"), make(kind, weight)
    loss, gradient = osm.cross_entropy_with_grad(x, t, w, impl=impl, **options)
    assert np.isnan(float(loss))
    assert np.isnan(float64(gradient)[:2]).all()
    assert (float64(gradient)[2] == 0).all()


@OPTIONS
@DTYPES
def test_autograd_early_late_and_twice(dtype, options, impl):
    x, w = make("torch", X, dtype).requires_grad_(), make("torch", WEIGHTS["none on the target"])
    loss = osm.cross_entropy(x, torch.tensor([0, 0, IGNORED]), w, impl=impl, **options)
    assert loss.isnan()
    first = torch.autograd.grad(loss, x, retain_graph=True)
    for (gradient,) in (first, torch.autograd.grad(loss, x, retain_graph=True)):
        assert gradient[:2].isnan().all()
        assert (gradient[2] == 0).all()
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    assert gradient[:2].isnan().all()
    assert (gradient[2] == 0).all()


def test_torch_says_the_same():
    x, t, w = make("torch", X).requires_grad_(), torch.zeros(3, dtype=torch.int64), torch.tensor([0.0, 1.0, 1.0])
    for smoothing in (0.0, 0.1):
        loss = torch.nn.functional.cross_entropy(x, t, w, label_smoothing=smoothing)
        assert loss.isnan()
        assert torch.autograd.grad(loss, x)[0].isnan().any(1).all()


@OPTIONS
def test_a_gradient_into_the_log_sum_exp_alone_is_not_divided(options, impl):
    x, t, w = make("torch", X).requires_grad_(), torch.tensor([0, 0, IGNORED]), torch.tensor([0.0, 1.0, 1.0])
    aux = osm.cross_entropy(x, t, w, return_aux=True, impl=impl, **options)[1]
    (gradient,) = torch.autograd.grad(aux.lse.sum(), x)
    want = osm.cross_entropy(x, t, reduction="sum", return_aux=True, impl=impl, **options)[1]
    assert torch.equal(gradient, torch.autograd.grad(want.lse.sum(), x)[0])


@OPTIONS
@DTYPES
def test_nothing_kept_has_no_gradient_and_none_of_its_gradient(dtype, options, impl):
    x, t = make("torch", X, dtype).requires_grad_(), torch.full((3,), IGNORED)
    loss = osm.cross_entropy(x, t, torch.tensor([0.0, 1.0, 1.0]), impl=impl, **options)
    assert loss.isnan()
    incoming = torch.ones((), requires_grad=True, dtype=loss.dtype)
    (gradient,) = torch.autograd.grad(loss, x, incoming, create_graph=True)
    assert (gradient == 0).all()
    for second in torch.autograd.grad(gradient.sum(), (x, incoming)):
        assert (second == 0).all()


def test_the_compiled_operator():
    x, w = make("torch", X).requires_grad_(), make("torch", WEIGHTS["none on the target"])
    call = torch.compile(lambda x, t: osm.cross_entropy(x, t, w), backend="eager", fullgraph=True)
    for targets, want in (([0, 0, IGNORED], np.nan), ([IGNORED] * 3, 0.0)):
        loss = call(x, torch.tensor(targets))
        assert loss.isnan()
        np.testing.assert_array_equal(float64(torch.autograd.grad(loss, x)[0])[:2], np.full((2, 3), want))

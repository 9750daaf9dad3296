"""A mean of linear + cross-entropy over rows that weigh nothing together, in one chunk and in several."""

import pytest
import torch
from tests.ops.linear_cross_entropy import common
from tests.ops.linear_cross_entropy.common import WAYS, arguments, gradients, loss_of


@pytest.fixture(autouse=True)
def small(monkeypatch):
    common.small_chunks(monkeypatch)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"z_loss": 0.1}])
def test_loss_and_every_gradient_are_nan_while_rows_are_kept(options, way, impl):
    leaves, weight = arguments(), torch.ones(7).double()
    weight[3] = 0.0
    target = torch.full((11,), 3)
    target[1] = -100
    loss = loss_of(leaves, target, weight=weight, impl=impl, **options, **WAYS[way])
    assert loss.isnan()
    for early in (True, False):
        dx, dw, db = gradients(loss, leaves, retain_graph=early)
        assert dx.isnan().any(1).sum() == 10
        assert (dx[1] == 0).all()
        assert dw.isnan().any()
        assert db.isnan().any()


@pytest.mark.parametrize("way", WAYS)
def test_a_gradient_into_the_log_sum_exp_alone_is_not_divided(way, impl):
    leaves, weight, target = arguments(), torch.zeros(7).double(), common.targets()
    given = {"return_aux": True, "impl": impl, **WAYS[way]}
    (_, aux), (_, plain) = (loss_of(leaves, target, weight=w, **given) for w in (weight, None))
    for got, want in zip(gradients(aux.lse.sum(), leaves), gradients(plain.lse.sum(), leaves), strict=True):
        torch.testing.assert_close(got, want)

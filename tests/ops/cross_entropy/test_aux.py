"""return_aux=True: log-sum-exp, z-loss, prediction and entropy of each row, from the same pass."""

import numpy as np
import pytest
import torch
from tests.arrays import INF, NAN, float64, make, random, same_bits
from tests.ops.cross_entropy.common import IGNORED, indices, logits, probabilities
from tests.tolerances import close
from tests.truth import rows_log_softmax, rows_logsumexp, rows_softmax

import online_softmax as osm


def entropy(x):
    p, logp = rows_softmax(x), rows_log_softmax(x)
    return -np.where(p == 0, 0.0, p * np.where(p == 0, 0.0, logp)).sum(-1)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("targets", ["indices", "probabilities"])
def test_each_part_is_what_it_says(targets, reduction, kind, impl):
    x = logits(kind=kind)
    t = probabilities(kind=kind) if targets == "probabilities" else indices(ignored=(1,), kind=kind)
    options = {"reduction": reduction, "z_loss": 0.1, "impl": impl}
    loss, aux = osm.cross_entropy(x, t, return_aux=True, **options)
    close(loss, osm.cross_entropy(x, t, **options), 0)
    lse = rows_logsumexp(float64(x))
    close(aux.lse, lse, 4)
    close(aux.z_loss, 0.1 * lse**2 * (1 if targets == "probabilities" else np.arange(6) != 1), 8)
    close(aux.entropy, entropy(float64(x)), 16)
    assert np.asarray(aux.predicted).tolist() == float64(x).argmax(1).tolist()
    assert "int64" in str(aux.predicted.dtype)
    assert isinstance(aux, osm.Aux)


def test_everything_is_of_the_scaled_and_capped_logits(kind, impl):
    x, t = logits(kind=kind), indices(kind=kind)
    _, aux = osm.cross_entropy(x, t, scale=-2.0, softcap=3.0, z_loss=0.5, return_aux=True, impl=impl)
    capped = 3.0 * np.tanh(-2.0 * float64(x) / 3.0)
    close(aux.lse, rows_logsumexp(capped), 8)
    close(aux.z_loss, 0.5 * rows_logsumexp(capped) ** 2, 16)
    close(aux.entropy, entropy(capped), 16)
    assert np.asarray(aux.predicted).tolist() == capped.argmax(1).tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_aux_is_float32_unless_the_logits_are_float64(dtype, impl):
    _, aux = osm.cross_entropy(logits(dtype=dtype), indices(), return_aux=True, impl=impl)
    wanted = torch.float64 if dtype == "float64" else torch.float32
    assert {aux.lse.dtype, aux.z_loss.dtype, aux.entropy.dtype} == {wanted}


def test_the_first_of_equal_maxima_is_predicted_and_nan_counts_as_largest(kind, impl):
    x = make(kind, [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [5.0, NAN, NAN], [-INF, -INF, -INF], [INF, 0.0, INF]])
    _, aux = osm.cross_entropy(x, indices(5, 3, kind=kind), return_aux=True, impl=impl)
    assert np.asarray(aux.predicted).tolist() == [1, 0, 1, 0, 0]


def test_prediction_and_entropy_over_rows_of_many_blocks(kind, impl):
    x = random((3, 30_000), spread=1.0)
    x[0, 8192], x[1, 29_999], x[2, 20_000] = 50.0, 9.0, NAN
    _, aux = osm.cross_entropy(make(kind, x, "float64"), indices(3, 30_000, kind=kind), return_aux=True, impl=impl)
    assert np.asarray(aux.predicted).tolist() == [8192, 29_999, 20_000]
    close(aux.entropy[:2], entropy(x[:2]), 16, atol=1e-13)
    assert np.isnan(float64(aux.entropy)[2])


def test_an_ignored_rows_aux_is_its_own(kind, impl):
    x, t = make(kind, [[0.0, 1.0], [NAN, 0.0]]), make(kind, [IGNORED, IGNORED], "int64")
    loss, aux = osm.cross_entropy(x, t, reduction="none", z_loss=1.0, return_aux=True, impl=impl)
    assert float64(loss).tolist() == [0.0, 0.0]
    assert float64(aux.z_loss).tolist() == [0.0, 0.0]
    assert float64(aux.lse)[0] == pytest.approx(np.logaddexp(0, 1))
    assert np.isnan(float64(aux.lse)[1])
    assert float64(aux.entropy)[0] > 0


def test_the_entropy_of_masked_and_uniform_rows(kind, impl):
    x = make(kind, [[0.0, -INF, -INF], [0.0, 0.0, -INF], [7.0, 7.0, 7.0], [0.0, -1000.0, -2000.0]], "float64")
    _, aux = osm.cross_entropy(x, indices(4, 3, kind=kind) * 0, return_aux=True, impl=impl)
    close(aux.entropy, [0.0, np.log(2), np.log(3), 0.0], 4)
    rows = make(kind, [[NAN, 0.0], [INF, 0.0], [-INF, -INF]])
    _, aux = osm.cross_entropy(rows, indices(3, 2, kind=kind), return_aux=True, impl=impl)
    assert np.isnan(float64(aux.entropy)).all()
    assert np.array_equal(float64(aux.lse), [NAN, INF, -INF], equal_nan=True)


def test_aux_has_the_shape_of_the_unreduced_loss(kind, impl):
    x, t = make(kind, random((2, 5, 3, 4))), make(kind, np.zeros((2, 3, 4)), "int64")
    _, aux = osm.cross_entropy(x, t, return_aux=True, impl=impl)
    assert {tuple(part.shape) for part in aux} == {(2, 3, 4)}
    _, aux = osm.cross_entropy(make(kind, [1.0, 2.0]), make(kind, 0, "int64"), return_aux=True, impl=impl)
    assert {tuple(part.shape) for part in aux} == {()}
    _, aux = osm.cross_entropy(make(kind, np.zeros((0, 3))), make(kind, [], "int64"), return_aux=True, impl=impl)
    assert {tuple(part.shape) for part in aux} == {(0,)}


def test_only_the_log_sum_exp_carries_a_gradient(impl):
    for reduction in ("mean", "none"):
        loss, aux = osm.cross_entropy(
            logits(grad=True), indices(), reduction=reduction, z_loss=0.1, return_aux=True, impl=impl
        )
        assert loss.requires_grad
        assert aux.lse.requires_grad
        assert not any(part.requires_grad for part in (aux.z_loss, aux.predicted, aux.entropy))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("options", [{}, {"scale": 0.5, "softcap": 3.0, "z_loss": 0.1, "label_smoothing": 0.2}])
def test_gradients_through_loss_and_log_sum_exp_together_or_alone(options, reduction, impl):
    x, t = logits(grad=True), indices(ignored=(2,))

    def both(x):
        loss, aux = osm.cross_entropy(x, t, reduction=reduction, return_aux=True, impl=impl, **options)
        return loss, aux.lse

    assert torch.autograd.gradcheck(both, (x,))
    assert torch.autograd.gradcheck(lambda x: both(x)[1], (x,))
    assert torch.autograd.gradcheck(lambda x: both(x)[0], (x,))
    assert torch.autograd.gradgradcheck(both, (x,))


def test_asking_for_aux_changes_no_bit_of_loss_and_gradient(impl):
    results = []
    for aux in (False, True):
        x = logits(dtype="float32", grad=True)
        loss = osm.cross_entropy(x, indices(), return_aux=aux, impl=impl)
        loss = loss[0] if aux else loss
        loss.backward()
        results.append((loss, x.grad))
    assert same_bits(results[0][0], results[1][0])
    assert same_bits(results[0][1], results[1][1])


def test_a_gradient_of_zero_into_the_log_sum_exp_of_a_nan_row_adds_nothing(impl):
    x = torch.tensor([[NAN, 0.0], [0.0, 1.0]], requires_grad=True)
    loss, aux = osm.cross_entropy(x, torch.tensor([IGNORED, 1]), return_aux=True, impl=impl)
    (loss + (aux.lse * torch.tensor([0.0, 2.0])).nan_to_num().sum()).backward()
    assert x.grad[0].tolist() == [0.0, 0.0]
    assert torch.isfinite(x.grad).all()

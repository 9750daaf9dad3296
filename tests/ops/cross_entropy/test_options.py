"""weight, ignore_index, label_smoothing, num_items, scale, softcap and z_loss: alone, in pairs, all at once."""

import itertools
import math

import numpy as np
import pytest
import torch
from tests.arrays import float64, make
from tests.ops.cross_entropy.common import IGNORED, grad_of, indices, logits, probabilities, true_gradient, truth
from tests.tolerances import close
from tests.truth import exact_log_softmax, exact_logsumexp, rows_logsumexp

import online_softmax as osm

WEIGHT = [0.5, 1.0, 2.0, 0.0, 3.0]
OPTIONS = {
    "weight": True,
    "ignore_index": 2,
    "label_smoothing": 0.2,
    "num_items": 7,
    "scale": -1.5,
    "softcap": 2.5,
    "z_loss": 0.03,
}
PAIRS = [{}, *({name: OPTIONS[name] for name in pair} for pair in itertools.combinations(OPTIONS, 2)), OPTIONS]


def named(options):
    return "+".join(options) or "none"


@pytest.mark.parametrize("targets", ["indices", "probabilities"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("options", PAIRS, ids=named)
def test_every_pair_of_options_agrees_with_its_definition(options, reduction, targets, impl):
    options = dict(options, reduction=reduction)
    if reduction != "mean":
        options.pop("num_items", None)
    if targets == "probabilities":
        options.pop("ignore_index", None)
    x = logits(8)
    t = probabilities(8) if targets == "probabilities" else indices(8, ignored=(1, 4), ignore_index=2)
    if targets == "indices" and "ignore_index" not in options:
        t = indices(8, ignored=(1, 4))
    w = torch.tensor(WEIGHT, dtype=torch.float64) if options.pop("weight", False) else None
    close(osm.cross_entropy(x, t, w, impl=impl, **options), truth(x, t, w, **options), 64, atol=1e-14)
    g = (
        torch.tensor([0.0, 9.0, -2.0, 3.5, 1e3, 7.0, 0.25, 1.0]).double()
        if reduction == "none"
        else torch.tensor(-3.0).double()
    )
    want = true_gradient(x, t, w, grad_loss=g, **options)
    close(grad_of(x, t, w, grad_loss=g, impl=impl, **options), want, 64, atol=1e-12)
    # The same without autograd, on NumPy arrays, with an incoming gradient of 1.
    given = (x.numpy(), t.numpy(), None if w is None else w.numpy())
    loss, gradient = osm.cross_entropy_with_grad(*given, impl=impl, **options)
    close(loss, truth(x, t, w, **options), 64, atol=1e-14)
    close(gradient, true_gradient(x, t, w, **options), 64, atol=1e-14)


@pytest.mark.parametrize("ignore", [IGNORED, -1, 255, 2])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ignored_rows_are_as_if_they_had_never_been_there(reduction, ignore, kind, impl):
    x, w = logits(kind=kind), make(kind, WEIGHT, "float64")
    t = make(kind, [1, ignore, 3, 0, ignore, 1], "int64")
    keep = make(kind, [0, 2, 3, 5], "int64")
    for weight, smoothing in itertools.product((None, w), (0.0, 0.1)):
        how = {"reduction": reduction, "label_smoothing": smoothing, "impl": impl}
        got = osm.cross_entropy(x, t, weight, ignore_index=ignore, **how)
        if reduction == "none":
            assert (float64(got)[[1, 4]] == 0).all()
            got = got[keep]
        close(got, osm.cross_entropy(x[keep], t[keep], weight, ignore_index=-7, **how), 8)


def test_the_mean_of_indices_divides_by_the_kept_rows_weights(kind, impl):
    x, t = logits(kind=kind), indices(ignored=(0, 1, 4), kind=kind)
    rows = osm.cross_entropy(x, t, reduction="none", impl=impl)
    close(osm.cross_entropy(x, t, impl=impl), float64(rows).sum() / 3, 4)
    w = make(kind, [0.5, 1.0, 2.0, 0.25, 3.0], "float64")
    rows = osm.cross_entropy(x, t, w, reduction="none", impl=impl)
    total = sum(float64(w)[i] for i in np.asarray(t) if i >= 0)
    close(osm.cross_entropy(x, t, w, impl=impl), float64(rows).sum() / total, 4)


def test_the_mean_of_probabilities_divides_by_the_rows_whatever_the_weights(kind, impl):
    x, p, w = logits(kind=kind), probabilities(kind=kind), make(kind, WEIGHT, "float64")
    rows = osm.cross_entropy(x, p, w, reduction="none", impl=impl)
    close(osm.cross_entropy(x, p, w, impl=impl), float64(rows).sum() / 6, 4)


def test_class_weights_enter_smoothing_as_in_torch(kind, impl):
    row, w, e = [0.3, -0.7], [0.1, 0.9], 0.1
    logp = exact_log_softmax(row)
    want = (1 - e) * w[0] * -logp[0] + e / 2 * (w[0] * -logp[0] + w[1] * -logp[1])
    x, weight = make(kind, [row], "float64"), make(kind, w, "float64")
    how = {"label_smoothing": e, "impl": impl}
    close(osm.cross_entropy(x, make(kind, [0], "int64"), weight, reduction="sum", **how), want, 8)
    close(osm.cross_entropy(x, make(kind, [0], "int64"), weight, **how), want / w[0], 8)
    close(osm.cross_entropy(x, make(kind, [[1.0, 0.0]], "float64"), weight, **how), want, 8)


def test_full_smoothing_no_longer_depends_on_the_target(impl):
    x = logits()
    a = osm.cross_entropy(x, indices(), label_smoothing=1.0, reduction="none", impl=impl)
    b = osm.cross_entropy(x, (indices() + 1) % 5, label_smoothing=1.0, reduction="none", impl=impl)
    close(a, b, 0)


@pytest.mark.parametrize("options", [{"weight": None}, {"label_smoothing": 0.1}, {"weight": True}])
def test_where_everything_is_ignored_the_mean_is_nan_and_every_gradient_zero(options, impl):
    weight = torch.tensor(WEIGHT).double() if options.get("weight") else None
    smoothing = options.get("label_smoothing", 0.0)
    x, t = logits(4), torch.full((4,), IGNORED)
    for reduction in ("none", "mean", "sum"):
        how = {"reduction": reduction, "label_smoothing": smoothing, "impl": impl, "z_loss": 0.1}
        loss = osm.cross_entropy(x, t, weight, **how)
        assert torch.isnan(loss) if reduction == "mean" else (loss == 0).all()
        assert (grad_of(x, t, weight, **how) == 0).all()
        assert (osm.cross_entropy_with_grad(x.numpy(), t.numpy(), **how)[1] == 0).all()


class TestNumItems:
    """The normaliser that the caller knows: gradient accumulation."""

    def test_micro_batches_add_up_to_the_whole(self, impl):
        x, t = logits(12), indices(12, ignored=(2, 4, 5, 6, 10))
        kept = int((t != IGNORED).sum())
        whole, want = osm.cross_entropy(x, t, impl=impl), grad_of(x, t, impl=impl)
        parts = [slice(0, 3), slice(3, 7), slice(7, 12)]
        losses = [osm.cross_entropy(x[p], t[p], num_items=kept, impl=impl) for p in parts]
        close(sum(losses), whole, 4)
        close(torch.cat([grad_of(x[p], t[p], num_items=kept, impl=impl) for p in parts]), want, 8, atol=1e-17)

    def test_it_may_be_a_number_or_a_single_element_array(self, kind, impl):
        x, t = logits(kind=kind), indices(kind=kind)
        want = truth(x, t, reduction="sum") / 4
        for four in (4, 4.0, np.int64(4), np.array(4), make(kind, 4, "int64"), make(kind, 4.0)):
            close(osm.cross_entropy(x, t, num_items=four, impl=impl), want, 8)
            close(
                osm.cross_entropy_with_grad(x, t, num_items=four, impl=impl)[1],
                true_gradient(x, t, num_items=4),
                8,
                1e-16,
            )

    def test_weights_do_not_enter_it_and_z_loss_is_divided_by_it_too(self, impl):
        x, t, w = logits(), indices(), torch.tensor(WEIGHT).double()
        rows = osm.cross_entropy(x, t, w, reduction="none", z_loss=0.1, impl=impl)
        close(osm.cross_entropy(x, t, w, num_items=10, z_loss=0.1, impl=impl), rows.sum() / 10, 8)

    def test_with_nothing_kept_the_loss_is_zero_not_nan(self, impl):
        x, t = logits(2), torch.tensor([IGNORED, IGNORED])
        assert osm.cross_entropy(x, t, num_items=5, impl=impl) == 0
        assert (grad_of(x, t, num_items=5, impl=impl) == 0).all()


class TestScaleAndSoftcap:
    """Temperature first, then the cap."""

    def test_scale_comes_before_softcap(self, kind, impl):
        x, t = logits(kind=kind), indices(kind=kind)
        z = 2.0 * np.tanh(3.0 * float64(x) / 2.0)
        close(osm.cross_entropy(x, t, scale=3.0, softcap=2.0, impl=impl), truth(z, t), 16)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
    def test_the_cap_is_exact_for_huge_and_small_logits(self, dtype, impl):
        x = make("torch", [[124.0, -3.0, 0.5, 40.0], [-200.0, -200.0, -200.0, -199.0]], dtype)
        t = torch.tensor([1, 0])
        close(
            osm.cross_entropy(x, t, softcap=30.0, reduction="none", impl=impl),
            truth(x, t, softcap=30.0, reduction="none"),
            8,
        )
        want = true_gradient(x, t, softcap=30.0, reduction="sum")
        close(grad_of(x, t, softcap=30.0, reduction="sum", impl=impl), want, 64 if "32" in dtype else 4, atol=1e-6)

    def test_capped_logits_close_to_the_cap_stay_apart(self, kind, impl):
        x, t = make(kind, [[-200.0, -200.0, -200.0, -199.0], [90.0, 91.0, 92.0, 93.0]]), make(kind, [0, 3], "int64")
        loss = osm.cross_entropy(x, t, softcap=30.0, reduction="none", impl=impl)
        close(loss, truth(x, t, softcap=30.0, reduction="none"), 2, atol=1.2e-6)

    def test_a_cap_far_above_the_logits_changes_next_to_nothing(self, impl):
        x, t = logits(), indices()
        close(osm.cross_entropy(x, t, softcap=1e8, impl=impl), truth(x, t), 64)

    def test_infinite_logits_become_the_cap(self, impl):
        x, t = torch.tensor([[math.inf, -math.inf, 0.0]]).double(), torch.tensor([2])
        want = exact_logsumexp([3.0, -3.0, 0.0])
        close(osm.cross_entropy(x, t, softcap=3.0, impl=impl), want, 8)
        g = grad_of(x, t, softcap=3.0, impl=impl)
        assert g[0, :2].tolist() == [0.0, 0.0]

    def test_a_scale_of_one_and_no_cap_change_no_bit(self, kind, impl):
        x, t = logits(kind=kind), indices(kind=kind)
        plain = osm.cross_entropy(x, t, impl=impl)
        assert float(osm.cross_entropy(x, t, scale=1.0, softcap=None, z_loss=0.0, impl=impl)) == float(plain)


class TestZLoss:
    """z · lse² a kept row."""

    def test_it_is_added_to_kept_rows_and_never_class_weighted(self, kind, impl):
        x, t, w = logits(kind=kind), indices(ignored=(2,), kind=kind), make(kind, WEIGHT, "float64")
        lse = rows_logsumexp(float64(x))
        plain = osm.cross_entropy(x, t, w, reduction="none", impl=impl)
        z = 0.01 * lse**2 * (np.arange(6) != 2)
        close(osm.cross_entropy(x, t, w, reduction="none", z_loss=0.01, impl=impl), float64(plain) + z, 16)
        mean = osm.cross_entropy(x, t, w, impl=impl)
        close(osm.cross_entropy(x, t, w, z_loss=0.01, impl=impl), float(mean) + z.sum() / 5, 16)

    def test_it_takes_the_scaled_and_capped_log_sum_exp(self, impl):
        x, t = logits(), indices()
        how = {"scale": 0.5, "softcap": 4.0, "reduction": "none", "impl": impl}
        capped = 4.0 * np.tanh(0.5 * float64(x) / 4.0)
        z = osm.cross_entropy(x, t, z_loss=0.1, **how) - osm.cross_entropy(x, t, **how)
        close(z, 0.1 * rows_logsumexp(capped) ** 2, 64, atol=1e-14)

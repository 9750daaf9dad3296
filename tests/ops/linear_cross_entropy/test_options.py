"""Every option, and every pair of them, against float64 autograd, in each way of taking chunks."""

import itertools

import numpy as np
import pytest
import torch
from tests.arrays import float64
from tests.ops.linear_cross_entropy import common
from tests.ops.linear_cross_entropy.common import CLASSES, ROWS, WAYS, arguments, gradients, loss_of
from tests.tolerances import close

import online_softmax as osm

OPTIONS = {
    "no bias": ("bias", False),
    "weights": ("weight", torch.linspace(0.0, 2.0, CLASSES, dtype=torch.float64)),
    "ignored rows": ("ignored", (0, 3, 4, 10)),
    "another ignore_index": ("ignore_index", 2),
    "probabilities": ("target", common.soft_targets()),
    "sum": ("reduction", "sum"),
    "none": ("reduction", "none"),
    "smoothing": ("label_smoothing", 0.1),
    "nothing but smoothing": ("label_smoothing", 1.0),
    "items": ("num_items", 5.0),
    "items on the device": ("num_items", torch.tensor(3.0)),
    "scale": ("scale", 0.5),
    "negative scale": ("scale", -1.5),
    "softcap": ("softcap", 2.0),
    "z": ("z_loss", 0.05),
}
PAIRS = [
    pair
    for pair in itertools.combinations(OPTIONS, 2)
    if OPTIONS[pair[0]][0] != OPTIONS[pair[1]][0]
    and not {"probabilities", "ignored rows"} <= set(pair)
    and not ({"probabilities", "ignored rows"} & set(pair) and "another ignore_index" in pair)
    and not ({"sum", "none"} & set(pair) and {"items", "items on the device"} & set(pair))
]


def problem(names):
    """Leaves, target and options of a choice of OPTIONS."""
    options = dict(OPTIONS[name] for name in names)
    leaves = arguments(bias=options.pop("bias", True))
    target = options.pop("target", None)
    ignored = options.pop("ignored", ())
    return leaves, common.targets(ignored=ignored) if target is None else target, options


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_two_options_together(pair, impl, monkeypatch):
    common.small_chunks(monkeypatch)
    leaves, target, options = problem(pair)
    want = common.true_loss(leaves, target, **options)
    incoming = torch.linspace(-1.0, 2.0, want.numel(), dtype=torch.float64).reshape(want.shape)
    wanted = gradients(want, leaves, incoming)
    for way in WAYS.values():
        loss = loss_of(leaves, target, impl=impl, **options, **way)
        close(loss, want, 64, atol=1e-15)
        for got, right in zip(gradients(loss, leaves, incoming), wanted, strict=True):
            close(got, right, 256, atol=1e-14)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("way", WAYS)
def test_aux_and_a_gradient_into_lse(name, way, impl, monkeypatch):
    common.small_chunks(monkeypatch)
    leaves, target, options = problem([name])
    x, w, b = leaves
    logits = x @ w.T if b is None else x @ w.T + b
    logits = options.get("scale", 1.0) * logits
    if "softcap" in options:
        logits = options["softcap"] * torch.tanh(logits / options["softcap"])
    lse, p = torch.logsumexp(logits, 1), torch.softmax(logits, 1)
    loss, aux = loss_of(leaves, target, return_aux=True, impl=impl, **options, **WAYS[way])
    close(aux.lse, lse, 16, atol=1e-15)
    close(aux.entropy, -(p * p.log()).sum(1), 64, atol=1e-14)
    assert torch.equal(aux.predicted, logits.argmax(1))
    kept = torch.ones(ROWS) if target.is_floating_point() else target != options.get("ignore_index", -100)
    close(aux.z_loss, options.get("z_loss", 0.0) * lse**2 * kept, 16)
    incoming = torch.linspace(-2.0, 1.0, ROWS, dtype=torch.float64)
    want = common.true_loss(leaves, target, **options).sum() + (lse * incoming).sum()
    got = loss.sum() + (aux.lse * incoming).sum()
    for one, right in zip(gradients(got, leaves), gradients(want, leaves), strict=True):
        close(one, right, 256, atol=1e-14)


@pytest.mark.parametrize("way", WAYS)
def test_all_options_at_once_for_arrays(way, kind, impl, monkeypatch):
    common.small_chunks(monkeypatch)
    names = ["weights", "ignored rows", "smoothing", "scale", "softcap", "z"]
    for reduction in ("mean", "sum", "none"):
        leaves, target, options = problem(names)
        weight = options.pop("weight")
        want = common.true_loss(leaves, target, weight, reduction=reduction, **options)
        given = [t.detach().numpy() if kind == "numpy" else t for t in (*leaves, target, weight)]
        x, w, b, t, weights = given
        options |= {"linear_bias": b, "weight": weights, "reduction": reduction, "impl": impl}
        loss, grads = osm.linear_cross_entropy_with_grads(x, w, t, **options, **WAYS[way])
        close(loss, want, 64)
        for got, right in zip(grads, gradients(want.sum(), leaves), strict=True):
            assert isinstance(got, np.ndarray if kind == "numpy" else torch.Tensor)
            close(got, float64(right), 256, atol=1e-14)
        alone = osm.linear_cross_entropy(x, w, t, **options, **WAYS[way])
        close(alone, want, 64)


def test_gradcheck(impl, monkeypatch):
    common.small_chunks(monkeypatch)
    target = common.targets(5, 4, ignored=(2,))
    x, w, b = arguments(5, 3, 4)
    for way in WAYS.values():
        for reduction in ("mean", "none"):
            options = {"reduction": reduction, "label_smoothing": 0.1, "softcap": 3.0, "z_loss": 0.1, **way}

            def loss(x, w, b, options=options):
                value, aux = loss_of((x, w, b), target, return_aux=True, impl=impl, **options)
                return value, aux.lse

            assert torch.autograd.gradcheck(loss, (x, w, b))

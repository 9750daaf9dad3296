"""When the gradients are made, which of them, and how autograd and its tools get them."""

import pytest
import torch
from tests.arrays import same_bits
from tests.ops.linear_cross_entropy import common
from tests.ops.linear_cross_entropy.common import WAYS, arguments, gradients, loss_of
from tests.tolerances import close
from torch.utils.checkpoint import checkpoint

import online_softmax as osm
from online_softmax._dispatch import implementation
from online_softmax.ops.linear_cross_entropy import products


@pytest.fixture
def calls(impl, monkeypatch):
    """In order: each product ('logits', 'into', 'add'), and what cross-entropy was asked for."""
    seen = []

    def record(module, name, word):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, **k: (seen.append(word(k)), function(*a, **k))[1])

    module = implementation("cross_entropy", torch.zeros(1, 1), impl)
    record(module, "forward", lambda k: "loss" if k.get("gradient") is None else "loss and gradient")
    record(module, "backward", lambda k: "gradient")
    record(module, "rescale", lambda k: "rescale")
    for name in ("logits", "into", "add"):
        record(products, name, lambda k, name=name: name)
    return seen


EARLY = ["logits", "loss and gradient", "into", "into", "rescale", "rescale", "rescale"]
LATE = ["logits", "loss", "logits", "gradient", "into", "into"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_mean_and_sum_take_three_products(dtype, reduction, impl, calls):
    loss_of(arguments(dtype=dtype), common.targets(), reduction=reduction, impl=impl).backward()
    assert calls == EARLY


@pytest.mark.parametrize(("dtype", "reduction"), [("float16", "mean"), ("float16", "sum"), ("float32", "none")])
def test_fp16_and_unreduced_losses_take_a_fourth(dtype, reduction, impl, calls):
    loss_of(arguments(dtype=dtype), common.targets(), reduction=reduction, impl=impl).sum().backward()
    assert calls == LATE


def test_the_least_memory_makes_no_gradient_early_and_the_last_chunk_s_logits_once(impl, calls, monkeypatch):
    common.small_chunks(monkeypatch)
    loss = loss_of(arguments(dtype="float32"), common.targets(), memory="least", impl=impl)
    assert calls == ["logits", "loss"] * 3
    loss.backward()
    again = ["gradient", "into", "add"]
    assert calls[6:] == again + ["logits", *again] * 2


def test_the_least_memory_takes_three_products_where_one_chunk_is_all(impl, calls):
    loss_of(arguments(dtype="float32"), common.targets(), memory="least", impl=impl).backward()
    assert calls == ["logits", "loss", "gradient", "into", "into"]


def test_losses_that_wait_for_their_backward_hold_one_chunk_of_logits(impl, calls, monkeypatch):
    """A later loss takes the place of an earlier one, whose logits are computed again: the same bits."""
    common.small_chunks(monkeypatch)
    given = [arguments(dtype="float32", seed=seed) for seed in (0, 3)]
    alone = [gradients(loss_of(leaves, common.targets(), memory="least", impl=impl), leaves) for leaves in given]
    losses = [loss_of(leaves, common.targets(), memory="least", impl=impl) for leaves in given]
    for loss, leaves, expected, products_of_logits in zip(losses, given, alone, (3, 2), strict=True):
        calls.clear()
        got = gradients(loss, leaves)
        assert calls.count("logits") == products_of_logits
        assert all(same_bits(a, b) for a, b in zip(got, expected, strict=True))


def test_without_autograd_there_is_one_product(impl, calls):
    x, w, b = arguments()
    with torch.no_grad():
        loss_of((x, w, b), common.targets(), impl=impl)
    with torch.inference_mode():
        loss_of((x, w, b), common.targets(), impl=impl)
    loss_of((x.detach(), w.detach(), b.detach()), common.targets(), impl=impl)
    assert calls == ["logits", "loss"] * 3


@pytest.mark.parametrize("asked", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("way", WAYS)
def test_only_gradients_that_are_asked_for_are_made(asked, way, impl, calls):
    leaves = arguments()
    wanted = gradients(common.true_loss(leaves, common.targets()), leaves)
    leaves = [leaf.detach().requires_grad_(i in asked) for i, leaf in enumerate(leaves)]
    loss_of(leaves, common.targets(), impl=impl, **WAYS[way]).backward()
    chunks = 3 if way == "chunks of rows" else 1
    assert sum(call in ("into", "add") for call in calls) == chunks * len([i for i in asked if i < 2])
    for i, (leaf, right) in enumerate(zip(leaves, wanted, strict=True)):
        if i in asked:
            close(leaf.grad, right, 64, atol=1e-15)
        else:
            assert leaf.grad is None


def test_a_second_backward_gives_the_same_and_shares_no_memory(impl, monkeypatch):
    common.small_chunks(monkeypatch)
    for way in WAYS.values():
        leaves = arguments(dtype="float32")
        loss = loss_of(leaves, common.targets(), impl=impl, **way)
        first = gradients(loss, leaves, retain_graph=True)
        kept = [g.clone() for g in first]
        second = gradients(loss, leaves, torch.tensor(-2.0))
        for g, h, k in zip(first, second, kept, strict=True):
            close(h, -2 * k, 16, atol=1e-7)
            assert same_bits(g, k)


def test_any_incoming_gradient(impl):
    for factor in (0.0, -3.0, 1024.0, 1e-4):
        for way in WAYS.values():
            leaves = arguments()
            wanted = gradients(factor * common.true_loss(leaves, common.targets()), leaves)
            got = gradients(factor * loss_of(leaves, common.targets(), impl=impl, **way), leaves)
            for one, right in zip(got, wanted, strict=True):
                close(one, right, 256, atol=abs(factor) * 1e-15)


def test_fp16_gradients_survive_a_mean_over_many_rows_under_loss_scaling(impl):
    """Divided by the rows before the scale is applied, they would round to nothing."""
    rows = 20000
    x = torch.ones(rows, 1, dtype=torch.float16)
    w = torch.zeros(2, 1, dtype=torch.float16, requires_grad=True)
    w.data[0] = -9.0
    loss = osm.linear_cross_entropy(x, w, torch.ones(rows, dtype=torch.int64), impl=impl)
    (loss * 2.0**16).backward()
    p = 1 / (1 + torch.tensor(9.0).double().exp())
    close(w.grad, [[p * 2.0**16], [-p * 2.0**16]], 4)


def test_second_derivatives_are_refused(impl):
    leaves = arguments()
    for options in ({}, {"reduction": "none"}, {"memory": "least"}):
        loss = loss_of(leaves, common.targets(), impl=impl, **options).sum()
        with pytest.raises(RuntimeError, match="no second derivative"):
            gradients(loss, leaves, create_graph=True)


def test_nothing_that_the_caller_owns_is_written_to(impl):
    leaves, target = arguments(), common.targets(ignored=(2,))
    before = [t.detach().clone() for t in (*leaves, target)]
    for way in WAYS.values():
        loss_of(leaves, target, impl=impl, **way).backward()
    assert all(same_bits(t.detach(), old) for t, old in zip((*leaves, target), before, strict=True))


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_inside_activation_checkpointing(use_reentrant, way, impl):
    leaves, target = arguments(), common.targets()

    def head(x, w, b):
        return loss_of((torch.tanh(x), w, b), target, impl=impl, **WAYS[way])

    plain = gradients(head(*leaves), leaves)
    checkpoint(head, *leaves, use_reentrant=use_reentrant).backward()
    for leaf, right in zip(leaves, plain, strict=True):
        close(leaf.grad, right, 8, atol=1e-15)


def test_micro_batches_add_up_to_the_whole(impl):
    leaves, target = arguments(), common.targets(ignored=(3, 4, 5, 6))
    whole = gradients(loss_of(leaves, target, impl=impl), leaves)
    x, w, b = leaves
    for part in (slice(0, 3), slice(3, 7), slice(7, 11)):  # every row of the second is ignored
        loss_of((x[part], w, b), target[part], num_items=7, impl=impl).backward()
    for leaf, right in zip(leaves, whole, strict=True):
        close(leaf.grad, right, 32, atol=1e-16)


def test_a_head_tied_to_the_embedding_gets_both_gradients(impl):
    table = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    words = torch.tensor([0, 3, 6, 2])
    osm.linear_cross_entropy(table[words], table, words.roll(1), impl=impl).backward()
    got, table.grad = table.grad, None
    torch.nn.functional.cross_entropy(table[words] @ table.T, words.roll(1)).backward()
    close(got, table.grad, 64, atol=1e-15)


def test_any_number_of_batch_dimensions(impl):
    x, w, b = arguments(12)
    for batch in ((), (12,), (3, 4), (2, 3, 2)):
        rows = x[0] if batch == () else x.reshape(*batch, 4)
        target = common.targets(12)[0] if batch == () else common.targets(12).reshape(batch)
        loss, aux = loss_of((rows, w, b), target, reduction="none", return_aux=True, impl=impl)
        assert loss.shape == batch
        assert all(part.shape == batch for part in aux)
        logits = rows @ w.T + b
        want = torch.nn.functional.cross_entropy(logits.reshape(-1, 7), target.reshape(-1), reduction="none")
        close(loss, want.reshape(batch), 16, atol=1e-15)
        soft = torch.softmax(logits.detach(), -1)
        close(loss_of((rows, w, b), soft, impl=impl), torch.special.entr(soft).sum(-1).mean(), 32)
        _, grads = osm.linear_cross_entropy_with_grads(rows, w, target, impl=impl)
        assert grads.input.shape == rows.shape
        assert grads.linear_bias is None

"""linear_cross_entropy under torch.compile, opcheck, autocast, fake and subclass tensors, and torch.func."""

import pytest
import torch
from tests.ops.linear_cross_entropy import common
from tests.ops.linear_cross_entropy.common import WAYS, arguments, gradients, loss_of
from tests.tolerances import close
from torch._subclasses.fake_tensor import FakeTensorMode

import online_softmax as osm


def with_aux(leaves, target, **options):
    loss, aux = loss_of(leaves, target, return_aux=True, z_loss=0.1, **options)
    return loss.sum() + aux.lse.mean() + aux.entropy.sum()


CALLS = {
    "mean": loss_of,
    "none": lambda *a, **k: loss_of(*a, reduction="none", **k),
    "a number of items": lambda *a, **k: loss_of(*a, num_items=9, label_smoothing=0.1, **k),
    "a tensor of items": lambda *a, **k: loss_of(*a, num_items=torch.tensor(9.0), softcap=2.0, **k),
    "with aux": with_aux,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("way", WAYS)
def test_traces_into_one_graph_with_values_and_gradients_of_eager_mode(call, way):
    torch._dynamo.reset()
    target = common.targets(ignored=(1,))

    def function(x, w, b):
        return CALLS[call]((x, w, b), target, **WAYS[way])

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    leaves = arguments(dtype="float32")
    got, want = compiled(*leaves), function(*leaves)
    close(got, want, 8, atol=1e-6)
    ours, eager = (gradients((loss * 3).sum(), leaves) for loss in (got, want))
    for one, right in zip(ours, eager, strict=True):
        close(one, right, 64, atol=1e-6)


def test_compiled_with_a_frozen_head_and_a_frozen_trunk():
    for frozen in (0, 1):
        torch._dynamo.reset()
        leaves = arguments(dtype="float32")
        leaves[frozen].requires_grad_(False)
        compiled = torch.compile(lambda *leaves: loss_of(leaves, common.targets()), fullgraph=True, backend="aot_eager")
        compiled(*leaves).backward()
        assert [leaf.grad is None for leaf in leaves] == [i == frozen for i in range(3)]


@pytest.mark.parametrize(("reduction", "memory"), [("mean", "fast"), ("none", "fast"), ("sum", "least")])
def test_the_operator_passes_torch_s_own_checks(reduction, memory):
    x, w, b = arguments(dtype="float32")
    options = (-100, reduction, 0.1, 1.0, None, 0.1, None, memory, torch.float32, True, [True] * 3, "auto")
    given = (x, w, b, common.targets(ignored=(1,)), torch.ones(7), None, None, *options)
    torch.library.opcheck(torch.ops.online_softmax.linear_cross_entropy, given)


@pytest.mark.parametrize("way", WAYS)
def test_autocast_multiplies_in_its_dtype_and_gives_gradients_in_the_arguments_own(way, impl):
    leaves, target = arguments(), common.targets()
    wanted = gradients(common.true_loss(leaves, target), leaves)
    mixed = [leaf.detach().to(dtype).requires_grad_() for leaf, dtype in
             zip(leaves, (torch.bfloat16, torch.float32, torch.float32), strict=True)]  # fmt: skip
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = loss_of(mixed, target, impl=impl, **WAYS[way])
    assert loss.dtype == torch.float32
    close(loss, common.true_loss(leaves, target), 1, atol=0.05)
    for leaf, got, right in zip(mixed, gradients(loss, mixed), wanted, strict=True):
        assert got.dtype == leaf.dtype
        close(got.float(), right, 1, atol=0.02)


def test_fp64_stays_fp64_under_autocast():
    leaves, target = arguments(), common.targets()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = loss_of(leaves, target)
    close(loss, common.true_loss(leaves, target), 16)


def test_fake_tensors_have_the_right_shapes():
    with FakeTensorMode():
        x, w = torch.empty(6, 4, requires_grad=True), torch.empty(9, 4, requires_grad=True)
        loss, aux = osm.linear_cross_entropy(x, w, torch.empty(6, dtype=torch.int64), return_aux=True)
        assert loss.shape == ()
        assert aux.predicted.dtype == torch.int64
        loss.backward()
        assert w.grad.shape == w.shape


def test_functional_transforms_are_refused():
    x, w, _ = arguments(bias=False)
    with pytest.raises(NotImplementedError, match=r"torch\.func"):
        torch.func.grad(lambda x: osm.linear_cross_entropy(x, w, common.targets()))(x)

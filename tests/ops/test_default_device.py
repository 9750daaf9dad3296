"""torch's default device is where a program's own new tensors go; results go where the arguments are."""

import ast
from pathlib import Path

import pytest
import torch

import online_softmax as osm
import online_softmax.nn
from online_softmax.nn import functional as F

PACKAGE = Path(osm.__file__).parent
# Programs make tensors of their own, and these wherever torch is told to; so do the rungs of the ladder.
PROGRAMS = ("bench", "demo", "ladder", "workshop")
MAKERS = {"arange", "as_tensor", "asarray", "empty", "empty_strided", "eye", "full", "linspace", "ones"}
MAKERS |= {"rand", "randint", "randn", "scalar_tensor", "tensor", "zeros"}


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


X, W, Q = leaf(3, 5), leaf(5, 4), leaf(2, 3, 4)
T = torch.tensor([0, 4, -100])
WEIGHT, P = torch.rand(5), torch.softmax(torch.randn(3, 5), 1)
LARGE = leaf(1025, 1024)  # memory of its own kind

CALLS = {
    "softmax": lambda impl: osm.softmax(X, impl=impl),
    "softmax with dtype": lambda impl: osm.softmax(X, dtype="float64", impl=impl),
    "softmax with where": lambda impl: osm.softmax(X, where=[True, False, True, True, True], impl=impl),
    "softmax along columns": lambda impl: osm.softmax(X, 0, impl=impl),
    "softmax of integers": lambda impl: osm.softmax(T, impl=impl),
    "a large softmax": lambda _: osm.softmax(LARGE),
    "log_softmax": lambda impl: osm.log_softmax(X, (0, 1), impl=impl),
    "logsumexp": lambda impl: osm.logsumexp(X, 1, impl=impl),
    "logsumexp of nothing": lambda impl: osm.logsumexp(X[:, :0], 1, impl=impl),
    "logsumexp with sign": lambda impl: tuple(osm.logsumexp(X, 1, return_sign=True, impl=impl)),
    "logsumexp with b": lambda _: osm.logsumexp(X, 1, b=2.0),
    "cross_entropy": lambda impl: osm.cross_entropy(X, T, impl=impl),
    "cross_entropy with all": lambda impl: osm.cross_entropy(
        X, T, WEIGHT, label_smoothing=0.1, z_loss=0.1, softcap=3.0, num_items=2, return_aux=True, impl=impl
    ),
    "cross_entropy in place": torch.enable_grad()(lambda impl: osm.cross_entropy(X * 2, T, inplace=True, impl=impl)),
    "unreduced cross_entropy": lambda impl: osm.cross_entropy(X, T, reduction="none", impl=impl),
    "cross_entropy of probabilities": lambda impl: osm.cross_entropy(X, P, impl=impl),
    "cross_entropy_with_grad": lambda impl: osm.cross_entropy_with_grad(X, T, impl=impl),
    "unreduced cross_entropy_with_grad": lambda impl: osm.cross_entropy_with_grad(X, T, reduction="none", impl=impl),
    "linear_cross_entropy": lambda impl: osm.linear_cross_entropy(Q[0], W, T, chunk_rows=2, impl=impl),
    "linear_cross_entropy, least": lambda impl: osm.linear_cross_entropy(
        Q[0], W, T, memory="least", label_smoothing=0.1, impl=impl
    ),
    "linear_cross_entropy with all": lambda impl: osm.linear_cross_entropy(
        Q[0], W, T, linear_bias=WEIGHT, weight=WEIGHT, z_loss=0.1, return_aux=True, reduction="none", impl=impl
    ),
    "linear_cross_entropy_with_grads": lambda impl: osm.linear_cross_entropy_with_grads(Q[0], W, T, impl=impl),
    "attention": lambda impl: osm.attention(Q, Q, Q, return_lse=True, impl=impl),
    "attention with causal and mask": lambda impl: osm.attention(Q, Q, Q, causal=True, mask=X[:, :3], impl=impl),
    "merge_attention": lambda impl: osm.merge_attention([Q, Q * 2], [Q[..., 0], Q[..., 1]], impl=impl),
    "merge_attention of stacks": lambda impl: osm.merge_attention(Q, Q[..., 0], impl=impl),
    "State": lambda _: osm.State.of(X, values=W.expand(3, 5, 4)).output(),
    "State of nothing": lambda _: osm.State.empty((3,), like=X).update(X[:, :0]).logsumexp(),
    "State.softmax": lambda _: osm.merge(osm.State.of(X), osm.State.of(X)).softmax(X),
    "nn.functional": lambda _: (F.softmax(X, 1), F.logsumexp(X, 1), F.cross_entropy(X, T, WEIGHT)),
    "special": lambda _: osm.special.logsumexp(X, b=WEIGHT),
}


def tensors_of(result):
    return [x for x in torch.utils._pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("grad", [False, True])
def test_results_and_gradients_are_where_the_arguments_are(call, grad, impl):
    with torch.device("meta"), torch.set_grad_enabled(grad):
        results = tensors_of(CALLS[call](impl))
        recorded = [x for x in results if x.requires_grad]
        if recorded:
            incoming = [x.detach() for x in recorded]
            results += tensors_of(torch.autograd.grad(recorded, [X, W, Q, LARGE], incoming, allow_unused=True))
    assert {x.device.type for x in results} == {"cpu"}


@pytest.mark.parametrize("create_graph", ["softmax", "logsumexp", "cross_entropy", "merge_attention"])
def test_second_derivatives_are_too(create_graph):
    with torch.device("meta"):
        result = tensors_of(CALLS[create_graph]("auto"))[0]
        leaves = [Q] if create_graph == "merge_attention" else [X]
        (first,) = torch.autograd.grad(result.square().sum(), leaves, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), leaves)
    assert first.device.type == second.device.type == "cpu"


def test_checks_of_targets_run_where_the_targets_are():
    with torch.device("meta"), pytest.raises(IndexError, match="is 9"):
        osm.check_targets(X, T * 0 + 9)


def test_distributed_functions_too():
    from online_softmax import distributed as od

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        with torch.device("meta"):
            results = [
                od.softmax(X),
                od.logsumexp(X),
                od.cross_entropy(X, T, z_loss=0.1, label_smoothing=0.1),
                od.linear_cross_entropy(Q[0], W, T),
                od.ring_attention(*[Q[:, None]] * 3, causal=True, lengths=[3]),
                od.all_merge(osm.State.of(X)).m,
                od.shard_sequence(Q, 1),
                od.gather_sequence(Q, lengths=[3], axis=1),
            ]
            recorded = [x for x in results if x.requires_grad]
            results += torch.autograd.grad(recorded, [X, W, Q], [x.detach() for x in recorded])
    finally:
        torch.distributed.destroy_process_group()
    assert {x.device.type for x in results} == {"cpu"}


def test_modules_take_a_dtype_by_name_whatever_the_device():
    with torch.device("meta"):
        loss = online_softmax.nn.LinearCrossEntropyLoss(4, 5, device="cpu", dtype="float64")
    assert loss.linear.weight.dtype == torch.float64


def test_every_array_that_the_library_makes_names_its_device():
    """GPU code too, which the calls above do not reach."""
    unnamed = []
    for file in PACKAGE.rglob("*.py"):
        if file.relative_to(PACKAGE).parts[0] in PROGRAMS:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MAKERS:
                of_a_library = ast.unparse(node.func.value).rsplit(".", 1)[-1] in ("torch", "xp")
                # Keywords that are spelled elsewhere, **where, have no name here.
                if of_a_library and not {"device", None} & {keyword.arg for keyword in node.keywords}:
                    unnamed.append(f"{file.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}")
    assert not unnamed

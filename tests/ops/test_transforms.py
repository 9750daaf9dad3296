"""What would bypass the library's gradients, or see nothing of its work, is refused by every function."""

import warnings

import pytest
import torch
from tests.ops.calls import CALLS, Tensors, process_group_of_one, run, tensors
from torch.autograd import forward_ad

import online_softmax as osm

quiet = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


@pytest.mark.parametrize("call", CALLS)
def test_vmap(call):
    batches = [torch.stack([x.detach()] * 2) for x in tensors()]
    with pytest.raises(NotImplementedError, match=r"torch\.func"):
        torch.func.vmap(lambda *a: run(call, Tensors(*a)))(*batches)


@quiet
@pytest.mark.parametrize("call", CALLS)
def test_forward_mode(call):
    a = tensors()
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward-mode"):
        run(call, a._replace(**{name: forward_ad.make_dual(getattr(a, name), getattr(a, name)) for name in "xwq"}))
    run(call, a)


@pytest.mark.parametrize("call", CALLS)
def test_a_trace(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jit is deprecated, and what a function asks of shapes becomes constant
        with pytest.raises(NotImplementedError, match=r"torch\.jit\.trace"):
            torch.jit.trace(lambda *a: run(call, Tensors(*a)), tuple(tensors()))
    run(call, tensors())


FUNCTIONS = {
    "softmax": osm.softmax,
    "log_softmax": osm.log_softmax,
    "logsumexp": lambda x: osm.logsumexp(x, 1),
    "cross_entropy": lambda x: osm.cross_entropy(x, torch.tensor([0, 1, 2])),
    "unreduced cross_entropy": lambda x: osm.cross_entropy(x, torch.tensor([0, 1, 2]), reduction="none"),
    "linear_cross_entropy": lambda x: osm.linear_cross_entropy(x, torch.ones(3, 5), torch.tensor([0, 1, 2])),
    "attention": lambda x: osm.attention(x, x, x),
    "merge_attention": lambda x: osm.merge_attention([x, x], [x[:, 0], x[:, 1]]).out,
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_batch_of_gradients(function):
    x = tensors().x
    y = FUNCTIONS[function](x)
    with pytest.raises(NotImplementedError, match="is_grads_batched"):
        torch.autograd.grad(y, x, torch.stack([torch.ones_like(y)] * 2), is_grads_batched=True, retain_graph=True)
    with pytest.raises(NotImplementedError, match="vectorize"):
        torch.autograd.functional.jacobian(FUNCTIONS[function], x, vectorize=True)


def test_a_batch_of_gradients_of_distributed_functions():
    from online_softmax import distributed as od

    a = tensors()
    with process_group_of_one():
        results = [
            od.softmax(a.x),
            od.logsumexp(a.x),
            od.cross_entropy(a.x, a.t),
            od.linear_cross_entropy(a.q[0], a.w, a.t),
            od.ring_attention(*[a.q[:, None]] * 3, lengths=[3]),
        ]
        for y in results:
            with pytest.raises(NotImplementedError, match="is_grads_batched"):
                torch.autograd.grad(y, a[:3], torch.stack([y.detach()] * 2), is_grads_batched=True, allow_unused=True)

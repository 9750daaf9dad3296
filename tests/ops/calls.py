"""A call of every public function on tensors, for what has to hold for all of them."""

from contextlib import contextmanager
from typing import NamedTuple

import torch

import online_softmax as osm
import online_softmax.special
from online_softmax.nn import functional as F


class Tensors(NamedTuple):
    """Arguments for every call; x, w and q require grad."""

    x: torch.Tensor
    w: torch.Tensor
    q: torch.Tensor
    t: torch.Tensor
    weight: torch.Tensor
    p: torch.Tensor

    def to(self, device):
        return Tensors(*(tensor.detach().to(device).requires_grad_(tensor.requires_grad) for tensor in self))

    def gradients(self, results):
        """Of x, w and q, as far as there are any, for the results themselves as incoming gradients."""
        recorded = [tensor for tensor in results if tensor.requires_grad]
        if not recorded:
            return []
        found = torch.autograd.grad(recorded, self[:3], [x.detach() for x in recorded], allow_unused=True)
        return [gradient for gradient in found if gradient is not None]


def tensors():
    draw = torch.Generator().manual_seed(3)
    x, w, q = (torch.randn(shape, generator=draw).requires_grad_() for shape in ((3, 5), (5, 4), (2, 3, 4)))
    t = torch.tensor([0, 4, -100])
    return Tensors(x, w, q, t, torch.rand(5, generator=draw), torch.softmax(torch.randn(3, 5, generator=draw), 1))


CALLS = {
    "softmax": lambda a, impl: osm.softmax(a.x, impl=impl),
    "softmax with dtype": lambda a, impl: osm.softmax(a.x, dtype="float64", impl=impl),
    "softmax with where": lambda a, impl: osm.softmax(a.x, where=[True, False, True, True, True], impl=impl),
    "softmax along columns": lambda a, impl: osm.softmax(a.x, 0, impl=impl),
    "softmax of integers": lambda a, impl: osm.softmax(a.t, impl=impl),
    "a large softmax": lambda a, _: osm.softmax(a.x[:1].repeat(1025, 205)),
    "log_softmax": lambda a, impl: osm.log_softmax(a.x, (0, 1), impl=impl),
    "logsumexp": lambda a, impl: osm.logsumexp(a.x, 1, impl=impl),
    "logsumexp of nothing": lambda a, impl: osm.logsumexp(a.x[:, :0], 1, impl=impl),
    "logsumexp with sign": lambda a, impl: tuple(osm.logsumexp(a.x, 1, return_sign=True, impl=impl)),
    "logsumexp with b": lambda a, _: osm.logsumexp(a.x, 1, b=2.0),
    "cross_entropy": lambda a, impl: osm.cross_entropy(a.x, a.t, impl=impl),
    "cross_entropy with all": lambda a, impl: osm.cross_entropy(
        a.x, a.t, a.weight, label_smoothing=0.1, z_loss=0.1, softcap=3.0, num_items=2, return_aux=True, impl=impl
    ),
    "cross_entropy in place": torch.enable_grad()(
        lambda a, impl: osm.cross_entropy(a.x * 2, a.t, inplace=True, impl=impl)
    ),
    "unreduced cross_entropy": lambda a, impl: osm.cross_entropy(a.x, a.t, reduction="none", impl=impl),
    "cross_entropy of probabilities": lambda a, impl: osm.cross_entropy(a.x, a.p, impl=impl),
    "cross_entropy_with_grad": lambda a, impl: osm.cross_entropy_with_grad(a.x, a.t, impl=impl),
    "unreduced cross_entropy_with_grad": lambda a, impl: osm.cross_entropy_with_grad(
        a.x, a.t, reduction="none", impl=impl
    ),
    "linear_cross_entropy": lambda a, impl: osm.linear_cross_entropy(a.q[0], a.w, a.t, chunk_rows=2, impl=impl),
    "linear_cross_entropy, least": lambda a, impl: osm.linear_cross_entropy(
        a.q[0], a.w, a.t, memory="least", label_smoothing=0.1, impl=impl
    ),
    "linear_cross_entropy with all": lambda a, impl: osm.linear_cross_entropy(
        a.q[0],
        a.w,
        a.t,
        linear_bias=a.weight,
        weight=a.weight,
        z_loss=0.1,
        return_aux=True,
        reduction="none",
        impl=impl,
    ),
    "linear_cross_entropy_with_grads": lambda a, impl: osm.linear_cross_entropy_with_grads(a.q[0], a.w, a.t, impl=impl),
    "attention": lambda a, impl: osm.attention(a.q, a.q, a.q, return_lse=True, impl=impl),
    "attention with causal and mask": lambda a, impl: osm.attention(
        a.q, a.q, a.q, causal=True, mask=a.x[:, :3], impl=impl
    ),
    "merge_attention": lambda a, impl: osm.merge_attention([a.q, a.q * 2], [a.q[..., 0], a.q[..., 1]], impl=impl),
    "merge_attention of stacks": lambda a, impl: osm.merge_attention(a.q, a.q[..., 0], impl=impl),
    "State": lambda a, _: osm.State.of(a.x, values=a.w.expand(3, 5, 4)).output(),
    "State of nothing": lambda a, _: osm.State.empty((3,), like=a.x).update(a.x[:, :0]).logsumexp(),
    "State.softmax": lambda a, _: osm.merge(osm.State.of(a.x), osm.State.of(a.x)).softmax(a.x),
    "nn.functional": lambda a, _: (F.softmax(a.x, 1), F.logsumexp(a.x, 1), F.cross_entropy(a.x, a.t, a.weight)),
    "special": lambda a, _: osm.special.logsumexp(a.x, b=a.weight),
}


@contextmanager
def process_group_of_one():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def run(name, a, impl="auto"):
    """All tensors of the call's result."""
    return [x for x in torch.utils._pytree.tree_leaves(CALLS[name](a, impl)) if isinstance(x, torch.Tensor)]

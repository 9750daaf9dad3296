"""Tensors whose sign is a flag of the view, like z.conj().imag: a kernel that reads memory alone would miss it."""

import pytest
import torch

import online_softmax as osm


def negative(*shape):
    view = torch.randn(*shape, dtype=torch.complex64).conj().imag
    assert view.is_neg()
    return view


def functions():
    target = torch.tensor([0, 2, 4])
    weight = torch.randn(7, 5)
    return {
        "softmax": lambda x: osm.softmax(x),
        "log_softmax": lambda x: osm.log_softmax(x, 0),
        "logsumexp": lambda x: osm.logsumexp(x, -1),
        "logsumexp, b": lambda x: osm.logsumexp(torch.zeros(3, 5), -1, b=x, return_sign=True).value,
        "cross_entropy": lambda x: osm.cross_entropy(x, target),
        "linear_cross_entropy": lambda x: osm.linear_cross_entropy(x, weight, target),
        "attention": lambda x: osm.attention(x, x, x),
        "merge_attention": lambda x: osm.merge_attention([x, x], [x[:, 0], x[:, 1]]).out,
        "State": lambda x: osm.State.of(x).logsumexp(),
    }


@pytest.mark.parametrize("name", functions())
def test_values_and_gradients_are_those_of_a_copy(name):
    torch.manual_seed(0)
    function = functions()[name]
    x = negative(3, 5)
    plain = x.resolve_neg().clone()
    assert torch.equal(function(x), function(plain))
    if name == "State":
        return
    results = []
    for leaf in (x.detach().requires_grad_(), plain.requires_grad_()):
        y = function(leaf)
        torch.manual_seed(1)
        grad = negative(*y.shape) if y.ndim else torch.ones(())
        results.append(torch.autograd.grad(y, leaf, grad if leaf is not plain else grad.resolve_neg())[0])
    assert torch.equal(*results)


def test_a_weight_and_a_mask_that_are_negative_views():
    x, weight = torch.randn(3, 5), negative(5)
    target = torch.tensor([0, 2, 4])
    assert torch.equal(osm.cross_entropy(x, target, weight), osm.cross_entropy(x, target, weight.clone()))
    mask = negative(3, 3)
    assert torch.equal(osm.attention(x, x, x, mask=mask), osm.attention(x, x, x, mask=mask.resolve_neg()))


def test_a_negative_view_as_out_is_refused():
    with pytest.raises(ValueError, match="out is a negative view"):
        osm.softmax(torch.randn(3, 5), out=negative(3, 5))

"""LinearCrossEntropyLoss and functional.linear_cross_entropy, beside torch's where torch has them."""

import inspect
import pickle

import pytest
import torch
from tests.arrays import same_bits
from tests.ops.linear_cross_entropy.common import arguments, gradients, targets, true_loss
from tests.tolerances import close

import online_softmax.nn
from online_softmax.nn import LinearCrossEntropyLoss, functional

needs_torchs = pytest.mark.skipif(
    not hasattr(torch.nn.functional, "linear_cross_entropy"), reason="torch 2.13 and later"
)


@needs_torchs
def test_the_signature_is_torchs():
    ours = inspect.signature(functional.linear_cross_entropy).parameters
    torchs = inspect.signature(torch.nn.functional.linear_cross_entropy).parameters
    assert [(p.name, p.default, p.kind) for p in ours.values()] == [
        (p.name, p.default, p.kind) for p in torchs.values()
    ]


@needs_torchs
@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"ignore_index": 2, "label_smoothing": 0.1}])
@pytest.mark.parametrize("extra", [(), (3,)])
def test_values_and_gradients_are_torchs(options, extra):
    x, _, _ = arguments()
    w = torch.randn(7, *extra, 4, dtype=torch.float64, requires_grad=True)
    b = torch.randn(7, *extra, dtype=torch.float64, requires_grad=True)
    t = torch.randint(7, (11, *extra))
    options = options | {"linear_bias": b, "weight": torch.linspace(0.5, 2.0, 7).double()}
    ours = functional.linear_cross_entropy(x, w, t, **options)
    torchs = torch.nn.functional.linear_cross_entropy(x, w, t, **options)
    close(ours, torchs, 64)
    for one, right in zip(gradients(ours, (x, w, b)), gradients(torchs, (x, w, b)), strict=True):
        close(one, right, 128, atol=1e-14)


@needs_torchs
def test_of_torchs_options_the_chunk_size_is_used():
    x, w, _ = arguments()
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=3)
    close(functional.linear_cross_entropy(x, w, targets(), options=options), true_loss((x, w, None), targets()), 64)


@needs_torchs
def test_the_module_reads_the_state_of_torchs():
    weight = torch.linspace(0.5, 2.0, 7)
    torchs = torch.nn.LinearCrossEntropyLoss(4, 7, bias=True, weight=weight, label_smoothing=0.1)
    ours = LinearCrossEntropyLoss(4, 7, bias=True, weight=torch.ones(7), label_smoothing=0.1)
    ours.load_state_dict(torchs.state_dict())
    x = torch.randn(11, 4)
    close(ours(x, targets()), torchs(x, targets()), 16)


def test_the_module_passes_every_option_on():
    options = {"scale": 0.5, "softcap": 2.0, "z_loss": 0.1, "label_smoothing": 0.1, "ignore_index": 3}
    leaves = arguments()
    for how in ({}, {"chunk_rows": 2}, {"memory": "least"}, {"reduction": "sum"}, {"impl": "reference"}):
        module = LinearCrossEntropyLoss(4, 7, bias=True, dtype=torch.float64, **options, **how)
        module.linear.weight, module.linear.bias = (torch.nn.Parameter(leaf.detach()) for leaf in leaves[1:])
        reduction = {"reduction": how["reduction"]} if "reduction" in how else {}
        close(module(leaves[0], targets()), true_loss(leaves, targets(), **options, **reduction), 64)
        assert all(f"{name}={value!r}" in repr(module) for name, value in (options | how).items())
    module = LinearCrossEntropyLoss(4, 7, dtype=torch.float64, return_aux=True)
    loss, aux = module(leaves[0], targets(), num_items=2)
    assert aux.lse.shape == (11,)
    close(loss, true_loss((leaves[0], module.linear.weight, None), targets(), num_items=2), 64)


def test_the_module_has_no_bias_unless_asked_for():
    assert LinearCrossEntropyLoss(4, 7).linear.bias is None
    assert repr(LinearCrossEntropyLoss(4, 7)).count("=") == 3  # of the layer


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"softcap": -1.0}, ValueError, "softcap is -1"),
        ({"bias": "yes"}, TypeError, "bias is 'yes'; wanted True or False"),
        ({"return_aux": 1}, TypeError, "return_aux is 1; wanted True or False"),
        ({"memory": "some"}, ValueError, "memory is 'some'"),
        ({"chunk_rows": True}, TypeError, "chunk_rows is True"),
        ({"impl": "quick"}, ValueError, "impl is 'quick'"),
        ({"weight": [1.0] * 7}, TypeError, "weight is a list; wanted a tensor"),
        ({"dtype": "int8"}, TypeError, "dtype is 'int8'; wanted float16"),
        ({"in_features": "4"}, TypeError, "in_features is '4'; wanted an int from 0 on"),
        ({"num_classes": -7}, ValueError, "num_classes is -7; wanted an int from 0 on"),
    ],
)
def test_a_wrong_option_is_refused_when_the_module_is_made(options, error, text):
    with pytest.raises(error, match=text):
        LinearCrossEntropyLoss(**({"in_features": 4, "num_classes": 7} | options))


def test_a_weight_of_several_dimensions_that_does_not_fit_shows_its_shape():
    x, t = torch.zeros(2, 3), torch.zeros(2, 5, dtype=torch.long)
    with pytest.raises(ValueError, match=r"linear_weight has shape \(4, 5, 7\).*wanted .* for input of shape \(2, 3\)"):
        functional.linear_cross_entropy(x, torch.zeros(4, 5, 7), t)
    with pytest.raises(ValueError, match=r"linear_bias has shape \(7,\).*wanted shape \(4, 5\)"):
        functional.linear_cross_entropy(x, torch.zeros(4, 5, 3), t, linear_bias=torch.zeros(7))
    with pytest.raises(TypeError, match="linear_weight is a list; wanted a torch tensor"):
        functional.linear_cross_entropy(x, [[1.0]], t)


def test_the_module_trains_moves_and_pickles():
    torch.manual_seed(0)
    module = online_softmax.nn.LinearCrossEntropyLoss(4, 7)
    x, optimizer = torch.randn(64, 4), torch.optim.Adam(module.parameters(), 0.1)
    t = (x @ torch.randn(4, 7)).argmax(1)
    first = module(x, t)
    for _ in range(60):
        optimizer.zero_grad()
        loss = module(x, t)
        loss.backward()
        optimizer.step()
    assert loss < 0.5 * first
    copy = pickle.loads(pickle.dumps(module))
    assert same_bits(copy(x, t).detach(), module(x, t).detach())
    assert module.double()(x.double(), t).dtype == torch.float64

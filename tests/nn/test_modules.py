"""online_softmax.nn: torch.nn's modules with the same arguments, states and results."""

import copy
import inspect
import pickle

import pytest
import torch
from tests.arrays import random
from tests.ops.cross_entropy.common import indices, logits
from tests.tolerances import close

import online_softmax as osm
from online_softmax import nn

W = torch.tensor([0.5, 1.0, 2.0, 0.25, 3.0]).double()


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_softmax_modules_are_torchs_with_another_forward(name):
    x = torch.tensor(random((2, 3, 4)))
    for dim in (0, 1, -1):
        ours, torchs = getattr(nn, name)(dim), getattr(torch.nn, name)(dim)
        close(ours(x), torchs(x), 8, atol=1e-15)
        assert isinstance(ours, getattr(torch.nn, name))
        assert repr(ours) == repr(torchs)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_softmax_modules_without_a_dim_warn_at_the_callers_line(name):
    with pytest.warns(UserWarning, match="dim") as caught:
        getattr(nn, name)()(torch.zeros(2, 3))
    assert caught[0].filename == __file__


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_loss_module_gives_torchs_loss(reduction):
    x, t = logits(), indices(ignored=(1,))
    for options in ({}, {"weight": W}, {"ignore_index": 3}, {"label_smoothing": 0.1, "weight": W}):
        target = t.clamp(min=0) if "ignore_index" in options else t
        ours = nn.CrossEntropyLoss(reduction=reduction, **options)
        torchs = torch.nn.CrossEntropyLoss(reduction=reduction, **options)
        close(ours(x, target), torchs(x, target), 16)


def test_the_loss_module_passes_its_further_options_on():
    x, t = logits(), indices()
    options = {"scale": 0.5, "softcap": 3.0, "z_loss": 0.1}
    module = nn.CrossEntropyLoss(**options, return_aux=True, impl="reference")
    loss, aux = module(x, t)
    want, want_aux = osm.cross_entropy(x, t, return_aux=True, impl="reference", **options)
    close(loss, want, 0)
    close(aux.lse, want_aux.lse, 0)
    close(nn.CrossEntropyLoss()(x, t, num_items=3), osm.cross_entropy(x, t, num_items=3), 0)
    leaf = logits(grad=True)
    hidden = leaf * 1
    nn.CrossEntropyLoss(inplace=True)(hidden, t).backward()
    close(leaf.grad, hidden.detach(), 0)


def test_the_weight_is_a_buffer_that_moves_and_is_saved_with_the_module():
    module = nn.CrossEntropyLoss(W)
    assert set(dict(module.named_buffers())) == {"weight"}
    assert module.float().weight.dtype == torch.float32
    twin = nn.CrossEntropyLoss(torch.ones(5).double())
    twin.load_state_dict(nn.CrossEntropyLoss(W).state_dict())
    assert torch.equal(twin.weight, W)


def test_copies_and_pickles_give_the_same_loss():
    module = nn.CrossEntropyLoss(W, label_smoothing=0.1, softcap=3.0)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        close(twin(logits(), indices()), module(logits(), indices()), 0)


def test_options_that_cannot_be_are_refused_when_the_module_is_made():
    for options in ({"label_smoothing": 2.0}, {"softcap": -1.0}, {"reduction": "median"}):
        with pytest.raises(ValueError, match=next(iter(options))):
            nn.CrossEntropyLoss(**options)
    with pytest.raises(ValueError, match="impl is 'quick'"):
        nn.CrossEntropyLoss(impl="quick")
    for options in ({"inplace": "yes"}, {"return_aux": 1}, {"weight": [1.0, 2.0]}):
        with pytest.raises(TypeError, match=f"{next(iter(options))} is .*; wanted"):
            nn.CrossEntropyLoss(**options)


@pytest.mark.filterwarnings("ignore:.*size_average and reduce args:UserWarning")
def test_the_old_ways_to_say_reduction_still_work():
    close(
        nn.CrossEntropyLoss(None, False)(logits(), indices()),
        torch.nn.CrossEntropyLoss(None, False)(logits(), indices()),
        8,
    )


def test_arguments_begin_as_torchs_do():
    ours = list(inspect.signature(nn.CrossEntropyLoss.__init__).parameters)
    torchs = list(inspect.signature(torch.nn.CrossEntropyLoss.__init__).parameters)
    assert ours[: len(torchs)] == torchs


def test_a_model_with_these_modules_compiles_in_one_graph():
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), nn.LogSoftmax(-1))
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)

    def step(x, t):
        return loss(model(x), t)

    x, t = torch.tensor(random((4, 6))).float(), indices(4)
    close(torch.compile(step, fullgraph=True, backend="aot_eager")(x, t), step(x, t), 8)


def test_everything_public_is_listed():
    classes = {n for n, c in vars(nn).items() if inspect.isclass(c) and c.__module__.startswith("online_softmax.nn")}
    assert {*classes, "functional"} <= set(nn.__all__)

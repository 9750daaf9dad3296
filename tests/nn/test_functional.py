"""online_softmax.nn.functional: torch's own signatures, so that a program changes its import and nothing else."""

import inspect

import numpy as np
import pytest
import torch
import torch.nn.functional
from tests.arrays import random
from tests.ops.cross_entropy.common import indices, logits, probabilities
from tests.tolerances import close

from online_softmax.nn import functional

PROGRAM = """
import torch
from {library} import functional as F

torch.manual_seed(0)
data, labels = torch.randn(64, 10), torch.randint(0, 4, (64,))
labels[5] = -100
layer = torch.nn.Linear(10, 4)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
history = []
for _ in range(20):
    logits = layer(data)
    loss = F.cross_entropy(logits, labels, weight=torch.tensor([1.0, 2.0, 0.5, 1.0]), label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
attention = F.softmax(logits.detach() @ logits.detach().T, dim=-1, dtype=torch.float64)
result = [history, attention.sum().item(), F.log_softmax(logits, dim=1).sum().item()]
result.append(F.cross_entropy(logits, labels, reduction="none")[:6].tolist())
result.append(F.cross_entropy(logits, F.softmax(logits, 1)).item())
"""


def run(library):
    names = {}
    exec(PROGRAM.format(library=library), names)
    return names["result"]


def flat(result):
    return torch.cat([torch.tensor(part, dtype=torch.float64).reshape(-1) for part in result])


def test_a_training_program_for_torch_runs_with_only_its_import_changed():
    ours, torchs = flat(run("online_softmax.nn")), flat(run("torch.nn"))
    assert (ours - torchs).abs().max() <= 2e-5 * torchs.abs().max()


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "cross_entropy"])
def test_signatures_are_torchs(name):
    ours = inspect.signature(getattr(functional, name)).parameters
    torchs = inspect.signature(getattr(torch.nn.functional, name)).parameters
    assert list(ours) == list(torchs)
    assert [p.default for p in ours.values()] == [p.default for p in torchs.values()]


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("shape", [(), (4,), (3, 4), (2, 3, 4), (2, 3, 4, 5)])
def test_a_missing_dim_is_guessed_as_torch_does_with_a_warning(name, shape):
    x = torch.tensor(random(shape))
    with pytest.warns(UserWarning, match="dim"):
        ours = getattr(functional, name)(x)
    with pytest.warns(UserWarning, match="dim"):
        torchs = getattr(torch.nn.functional, name)(x)
    close(ours, torchs, 8, atol=1e-15)


def test_the_warning_points_at_the_callers_line():
    with pytest.warns(UserWarning, match="dim") as caught:
        functional.softmax(torch.zeros(2))
    assert caught[0].filename == __file__


def test_dtype_and_every_dim():
    x = torch.tensor(random((2, 3, 4))).half()
    for dim in (-3, -1, 0, 1, 2):
        ours = functional.softmax(x, dim, dtype=torch.float32)
        assert ours.dtype == torch.float32
        close(ours, torch.nn.functional.softmax(x, dim, dtype=torch.float32), 8)
    close(functional.logsumexp(x.double(), (0, 2), keepdim=True), torch.logsumexp(x.double(), (0, 2), keepdim=True), 8)
    close(functional.logsumexp(x.double(), 1), torch.logsumexp(x.double(), 1), 8)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("targets", ["indices", "probabilities"])
def test_cross_entropy_gives_torchs_values_and_gradients(targets, reduction):
    t = probabilities() if targets == "probabilities" else indices(ignored=(2,))
    w = torch.tensor([0.5, 1.0, 2.0, 0.25, 3.0]).double()
    for options in ({}, {"weight": w}, {"label_smoothing": 0.2}, {"weight": w, "label_smoothing": 0.2}):
        x, y = logits(grad=True), logits(grad=True)
        ours = functional.cross_entropy(x, t, reduction=reduction, **options)
        torchs = torch.nn.functional.cross_entropy(y, t, reduction=reduction, **options)
        close(ours, torchs, 16, atol=1e-15)
        ours.sum().backward()
        torchs.sum().backward()
        close(x.grad, y.grad, 32, atol=1e-15)


@pytest.mark.filterwarnings("ignore:.*size_average and reduce args:UserWarning")
def test_the_old_ways_to_say_reduction_still_work():
    x, t = logits(), indices()
    for size_average, reduce in ((True, True), (False, True), (None, False), (True, None)):
        ours = functional.cross_entropy(x, t, None, size_average, -100, reduce)
        close(ours, torch.nn.functional.cross_entropy(x, t, None, size_average, -100, reduce), 8)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_other_libraries_words_for_an_argument_are_answered(name):
    fn = getattr(functional, name)
    with pytest.raises(TypeError, match=rf"{name}\(\) takes dim=, not axis="):
        fn(torch.zeros(2, 3), axis=1)
    with pytest.raises(TypeError, match=rf"{name}\(\) takes input=, not x="):
        fn(x=torch.zeros(2, 3), dim=1)
    if name == "logsumexp":
        with pytest.raises(TypeError, match="takes keepdim=, not keepdims="):
            fn(torch.zeros(2, 3), 1, keepdims=True)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
@pytest.mark.parametrize("dim", [True, 1.0, "1"])
def test_errors_speak_of_dim(name, dim):
    with pytest.raises(TypeError, match=r"dim is .*; wanted an int"):
        getattr(functional, name)(torch.zeros(2, 3), dim)
    with pytest.raises(ValueError, match="dim is 2, which is out of range"):
        getattr(functional, name)(torch.zeros(2, 3), 2)


def test_keepdim_is_true_or_false():
    with pytest.raises(TypeError, match="keepdim is 1; wanted True or False"):
        functional.logsumexp(torch.zeros(2, 3), 1, keepdim=1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("x", [np.zeros(3), [0.0, 1.0], None])
def test_arrays_and_lists_are_refused(x):
    for name in ("softmax", "log_softmax", "logsumexp"):
        with pytest.raises(TypeError, match=f"input is a {type(x).__name__}; wanted a torch tensor"):
            getattr(functional, name)(x, None)


def test_everything_public_is_listed():
    public = {n for n, f in vars(functional).items() if inspect.isfunction(f) and f.__module__ == functional.__name__}
    assert {name for name in public if not name.startswith("_")} == set(functional.__all__)

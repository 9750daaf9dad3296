"""examples/train_transformer.py learns, and its loss is that of the logits it never makes."""

import importlib.util
from pathlib import Path

import pytest
import torch
from tests.tolerances import close

from online_softmax.demo import text

PATH = Path(__file__).parents[2] / "examples" / "train_transformer.py"


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("train_transformer", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_few_steps_lower_the_loss(example, monkeypatch, capsys):
    whole = text.load()
    monkeypatch.setattr(text, "load", lambda: whole._replace(held_out=whole.held_out[:8]))
    example.main(["--steps", "12", "--batch", "4"])
    shown = capsys.readouterr().out
    losses = [float(line.split()[-1]) for line in shown.splitlines() if line.startswith("step")]
    assert losses[-1] < 0.9 * losses[0]
    assert "held-out perplexity" in shown


@pytest.mark.parametrize("memory", ["fast", "least"])
def test_the_loss_and_its_gradients_are_those_of_the_logits(example, memory):
    torch.manual_seed(0)
    model = example.Model(50, memory).eval()
    words, following = example.rows([list(range(1, 40)), [3, 2, 1]])
    model(words, following).backward()
    got = model.words.weight.grad.clone()
    model.zero_grad()
    logits = model.features(words) @ model.words.weight.T
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
    close(model(words, following), loss.detach(), 16)
    loss.backward()
    close(got, model.words.weight.grad, 64, atol=1e-6)

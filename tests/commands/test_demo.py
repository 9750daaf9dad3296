"""``online-softmax demo``: it learns, agrees with torch, and leaves other people's files alone."""

import json
import sys
import xml.etree.ElementTree

import pytest
import torch

from online_softmax import cli
from online_softmax.commands import demo
from online_softmax.demo import loss_step, text, training


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A few hundred held-out words, and no processes to measure memory in."""
    whole = text.load()
    monkeypatch.setattr(text, "load", lambda: whole._replace(held_out=whole.held_out[:10]))
    monkeypatch.setattr(training, "BATCH", 64)
    monkeypatch.setattr(demo, "peak_extra", lambda function, **arguments: 1000)


def test_it_writes_a_curve_and_a_report(tmp_path, capsys):
    assert cli.main(["demo", "--steps", "8", "--output", str(tmp_path / "new")]) == 0
    shown = capsys.readouterr().out
    assert "held-out perplexity" in shown
    assert "torch" in shown
    xml.etree.ElementTree.parse(tmp_path / "new" / demo.CURVE)
    report = json.loads((tmp_path / "new" / demo.REPORT).read_text())
    first, last = report["perplexities"][0], report["perplexities"][-1]
    assert (first[0], last[0]) == (0, 8)
    assert last[1] < 0.7 * first[1]
    assert report["loss difference"] < demo.LARGEST_DIFFERENCE
    assert report["linear loss difference"] < demo.LARGEST_DIFFERENCE
    assert set(report["last layer peak bytes"]) == {"online-softmax", "torch"}


def test_json_prints_one_object_and_runs_repeat_exactly(tmp_path, capsys):
    losses = []
    for _ in range(2):
        assert cli.main(["demo", "--steps", "3", "--output", str(tmp_path), "--json"]) == 0
        losses.append(json.loads(capsys.readouterr().out)["losses"])
    assert losses[0] == losses[1]


def test_it_refuses_to_write_over_a_file_of_the_user_s(tmp_path, capsys):
    (tmp_path / demo.CURVE).write_text("<svg>mine</svg>")
    assert cli.main(["demo", "--steps", "1", "--output", str(tmp_path)]) == 2
    assert "not the demo's own file" in capsys.readouterr().err
    assert (tmp_path / demo.CURVE).read_text() == "<svg>mine</svg>"


def test_an_output_without_a_name_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--steps", "1", "--output", ""]) == 2
    assert "--output is ''; wanted the name of a folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_output_that_is_a_file_is_one_plain_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["demo", "--output", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("steps", ["0", "-3"])
def test_too_few_steps_are_refused(steps, tmp_path, capsys):
    assert cli.main(["demo", "--steps", steps, "--output", str(tmp_path)]) == 2
    assert f"--steps is {steps}" in capsys.readouterr().err


def test_a_loss_that_differs_from_torch_s_fails(tmp_path, capsys, monkeypatch):
    def wrong(*args, **options):
        return 1.001 * torch.nn.functional.cross_entropy(*args, **options)

    monkeypatch.setitem(loss_step.LOSSES, "online-softmax", wrong)
    assert cli.main(["demo", "--steps", "1", "--output", str(tmp_path)]) == 1
    assert "losses differ" in capsys.readouterr().err


def test_a_linear_loss_that_differs_from_torch_s_fails_too(tmp_path, capsys, monkeypatch):
    right = loss_step.HEADS["online-softmax"]
    monkeypatch.setitem(loss_step.HEADS, "online-softmax", lambda *args, **options: 1.001 * right(*args, **options))
    assert cli.main(["demo", "--steps", "1", "--output", str(tmp_path)]) == 1
    assert "losses differ" in capsys.readouterr().err


@pytest.mark.parametrize("library", ["online-softmax", "torch"])
def test_the_last_layer_that_is_measured_makes_every_gradient(library):
    step = loss_step.prepare_head(library, rows=6, features=3, columns=5)
    inputs, layer = (
        cell.cell_contents
        for name, cell in zip(step.__code__.co_freevars, step.__closure__, strict=True)
        if name in ("inputs", "layer")
    )
    step()
    assert inputs.grad.shape == (6, 3)
    assert layer.weight.grad.shape == (5, 3)
    assert layer.bias.grad.shape == (5,)


def test_without_torch_it_says_what_to_install(monkeypatch, capsys):
    for name in [
        name for name in sys.modules if name.startswith(("online_softmax.demo", "online_softmax.commands.demo"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cli.main(["demo"]) == 2
    assert "pip install 'online-softmax[torch]'" in capsys.readouterr().err

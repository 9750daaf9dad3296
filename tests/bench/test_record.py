"""What a file of results says about the machine and the source it was made with."""

import subprocess

import pytest
import torch

import online_softmax
from online_softmax.bench import record


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A source tree in the package's place."""
    folder = tmp_path / "tree" / "src"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    monkeypatch.setattr(online_softmax, "__path__", [str(folder)])
    monkeypatch.delenv("ONLINE_SOFTMAX_COMMIT", raising=False)
    return folder


def test_the_commit_of_a_checkout_is_git_s(source):
    git(source, "init", "-q")
    git(source, "add", ".")
    git(source, "commit", "-qm", "first")
    first = record.commit()
    assert len(first) == 12
    assert set(first) <= set("0123456789abcdef")
    (source / "__init__.py").write_text("changed")
    assert record.commit() == first + "+"


def test_the_commit_of_an_exported_tree_is_unknown_unless_the_environment_says_it(source, monkeypatch):
    assert record.commit() == "unknown"
    git(source.parents[1], "init", "-q")  # somebody else's repository around it
    assert record.commit() == "unknown"
    monkeypatch.setenv("ONLINE_SOFTMAX_COMMIT", "0123456789ab")
    assert record.commit() == "0123456789ab"


def test_the_environment_knows_better_than_git_what_was_copied_into_a_checkout(source, monkeypatch):
    git(source, "init", "-q")
    git(source, "add", ".")
    git(source, "commit", "-qm", "first")
    monkeypatch.setenv("ONLINE_SOFTMAX_COMMIT", "0123456789ab")
    assert record.commit() == "0123456789ab"


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H200", "h200.jsonl"),
        ("NVIDIA GeForce RTX 4090", "rtx_4090.jsonl"),
        ("NVIDIA A100-SXM4-80GB", "a100_sxm4_80gb.jsonl"),
        ("Tesla T4", "t4.jsonl"),
    ],
)
def test_results_of_a_gpu_are_named_after_it(device, name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: device)
    assert record.file_name("cuda") == name
    assert record.file_name("cpu") == "cpu.jsonl"

"""Files that commands write are looked at before the work."""

import os

import pytest

from online_softmax import cli
from online_softmax.commands._files import to_write
from online_softmax.terminal import CommandError


def test_a_file_that_can_be_written_is_a_path(tmp_path):
    (tmp_path / "old.svg").write_text("kept")
    for name in ("new.svg", "old.svg", "NEW.SVG"):
        assert to_write("--plot", str(tmp_path / name), ".svg") == tmp_path / name
    assert to_write("--plot", None, ".svg") is None
    assert [path.name for path in tmp_path.iterdir()] == ["old.svg"]
    assert (tmp_path / "old.svg").read_text() == "kept"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("", "--plot is ''; wanted the name of a file"),
        ("-", "--plot is '-'; wanted the name of a file"),
        ("a.png", "--plot is a.png; wanted a name that ends in .svg"),
        ("folder.svg", "cannot write to --plot folder.svg: it is a directory"),
        ("none/a.svg", "cannot write to --plot none/a.svg: there is no directory"),
        ("shut.svg", "cannot write to --plot shut.svg: permission denied"),
    ],
)
def test_anything_else_is_told_at_once(given, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.svg").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: given != "shut.svg")
    with pytest.raises(CommandError, match=text):
        to_write("--plot", given, ".svg")


def test_two_options_want_two_files(tmp_path, capsys):
    same = str(tmp_path / "a.svg")
    for command in (["trace"], ["ladder"], ["bench", "--quick"]):
        assert cli.main([*command, "--plot", same, "--json", same]) == 2
        assert "--plot and --json are the same file" in capsys.readouterr().err
    assert not (tmp_path / "a.svg").exists()

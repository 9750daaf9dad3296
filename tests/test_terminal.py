"""Tables and progress where standard output is a file, and where it is a terminal."""

import sys

from online_softmax import terminal


def test_a_plain_table_lines_figures_up_to_the_right(capsys):
    terminal.table("Times", ("library", "ms"), [("torch", "12.5"), ("numpy", "7")])
    assert capsys.readouterr().out == "Times\nlibrary    ms\n-------  ----\ntorch    12.5\nnumpy       7\n\n"


def test_a_table_of_words_stands_to_the_left(capsys):
    terminal.table("State", ("impl", "state"), [("cpu", "on"), ("cuda", "missing")], figures=False)
    assert "cpu   on\ncuda  missing\n" in capsys.readouterr().out


def test_a_table_on_a_terminal_shows_markup_as_it_is(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    terminal.table("T", ("a", "b"), [("x[torch]", "1")])
    assert "x[torch]" in capsys.readouterr().out


def test_plain_progress_tells_every_tenth_and_leaves_standard_output_alone(capsys):
    with terminal.progress("work", 50) as advance:
        for step in range(50):
            advance(f"step {step}")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 10
    assert captured.err.endswith("work: 50 of 50  step 49\n")


def test_progress_on_a_terminal_counts_to_the_end(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with terminal.progress("work", 3) as advance:
        for _ in range(3):
            advance("")
    assert "3/3" in capsys.readouterr().err

import json
import sys

import numpy as np
import pytest

from online_softmax.cli import main
from online_softmax.trace import trace


def run(*words):
    return main(["trace", *words])


def test_the_table_has_a_line_a_block_and_the_totals(capsys):
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(".." in line for line in lines) == 8
    assert "block updates         8" in lines
    assert "rescales              2" in lines


def test_a_row_shorter_than_a_block_is_one_block(capsys):
    assert run("--n", "5") == 0
    assert "5 logits, float64, in blocks of 5" in capsys.readouterr().out


def test_json_holds_what_trace_returns(tmp_path, capsys):
    path = tmp_path / "trace.json"
    assert run("--scale", "1000", "--json", str(path)) == 0
    found = json.loads(path.read_text())
    expected = trace(1000 * np.random.default_rng(17).standard_normal(64), block=8)
    assert found["online"] == expected.online
    assert found["naive_sum"] == "inf"
    assert float(found["blocks"][0]["m_before"]) == expected.blocks[0].m_before
    capsys.readouterr()
    assert run("--scale", "1000", "--json", "-") == 0
    assert json.loads(capsys.readouterr().out) == found


def test_plot_writes_an_svg_file(tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    path = tmp_path / "trace.svg"
    assert run("--plot", str(path)) == 0
    assert path.read_text().startswith("<svg")


def test_plot_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    assert run("--plot", str(tmp_path / "trace.svg")) == 2
    assert "online-softmax[workshop]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--n", "4", "--block", "8"), "--block is 8; wanted 1 to the row's length 4"),
        (("--n", str(10**14)), f"--n: {10**14} logits do not fit this machine's memory"),
        (("--n", str(10**30)), f"--n: {10**30} logits do not fit this machine's memory"),
        (("--n", "0"), "--n: a number of logits of at least 1 is wanted, got 0"),
        (("--seed", "-1"), "--seed: 0 or more is wanted, got -1"),
        (("--json", "no/such/directory/f.json"), "cannot write to --json no/such/directory/f.json"),
        (("--json", ""), "--json is ''; wanted the name of a file"),
        (("--plot", "-"), "--plot is '-'; wanted the name of a file"),
        (("--plot", "a.png"), "--plot is a.png; wanted a name that ends in .svg"),
    ],
)
def test_bad_input_gets_one_plain_line(words, text, capsys):
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1

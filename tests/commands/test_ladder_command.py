import json

import pytest

from online_softmax.cli import main
from online_softmax.ladder import cpu, run

if (reason := cpu.missing()) is not None:
    pytest.skip(reason, allow_module_level=True)

SMALL = ("--rows", "64", "--cols", "1000", "--no-compile")


def test_the_table_names_reads_idea_time_and_speed_of_every_rung(capsys):
    assert main(["ladder", *SMALL]) == 0
    output = capsys.readouterr().out
    assert "64 × 1000 float32 on cpu" in output
    for heading in ("version", "reads of the row", "key idea", "relative speed", "usual claim", "fraction of copy"):
        assert heading in output
    for rung in cpu.rungs():
        assert rung.idea in output
    assert "fused against online followed by a loss" in output


def test_json_keeps_the_machine_and_the_figures(tmp_path):
    path = tmp_path / "ladder.jsonl"
    assert main(["ladder", *SMALL, "--dtype", "float64", "--json", str(path)]) == 0
    machine, ladder = map(json.loads, path.read_text().splitlines())
    assert machine["record"] == "machine"
    assert "processor" in machine["machine"]
    assert (ladder["rows"], ladder["columns"], ladder["dtype"]) == (64, 1000, "float64")
    assert ladder["rungs"][1]["name"] == "naive"


def test_plot_writes_an_svg_file(tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    path = tmp_path / "ladder.svg"
    assert main(["ladder", *SMALL, "--plot", str(path)]) == 0
    assert path.read_text().startswith("<svg")


def test_a_wrong_rung_prints_no_table_and_fails(capsys, monkeypatch):
    def wrong(*_):
        raise run.WrongRungError("online is wrong")

    monkeypatch.setattr(run, "climb", wrong)
    assert main(["ladder", *SMALL]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "online is wrong" in captured.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--rows", "0", "--cols", "3"), "--rows: 1 or more is wanted, got 0"),
        (("--rows", "3", "--cols", "-3"), "--cols: 1 or more is wanted, got -3"),
        (("--rows", "3", "--cols", str(10**30)), f"3 × {10**30} does not fit this machine's memory"),
        (("--rows", "3"), "--cols is missing: --rows and --cols go together"),
        (("--cols", "3"), "--rows is missing: --rows and --cols go together"),
        (("--dtype", "int8"), "--dtype: one of float32, float64 is wanted, got int8"),
        (("--json", "no/such/directory/f"), "cannot write to --json no/such/directory/f: there is no directory"),
        (("--json", "-"), "--json is '-'; wanted the name of a file"),
        (("--plot", "a.png"), "--plot is a.png; wanted a name that ends in .svg"),
    ],
)
def test_bad_input_gets_one_plain_line(words, text, capsys):
    assert main(["ladder", *words]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1


def test_without_a_gpu_cuda_says_what_is_missing(capsys):
    from online_softmax.ladder import cuda

    if cuda.missing() is None:
        pytest.skip("this machine has a GPU")
    assert main(["ladder", "--device", "cuda"]) == 2
    assert "--device cuda: " in capsys.readouterr().err

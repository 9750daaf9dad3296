"""``online-softmax bench`` on tiny shapes: every workload of both lists runs, and answers are right."""

import json
import types

import pytest
import torch

from online_softmax import cli
from online_softmax.bench import contestants, timing
from online_softmax.bench.record import read
from online_softmax.bench.run import Runner
from online_softmax.bench.workload import cpu_workloads, cuda_workloads
from online_softmax.commands import bench


@pytest.fixture(autouse=True)
def few_calls(monkeypatch):
    monkeypatch.setattr(timing, "CALLS_IN_A_ROUND", 2)
    monkeypatch.setattr(timing, "last_cache_bytes", lambda: 2**10)
    tiny = [w._replace(rows=min(w.rows, 4), columns=min(w.columns, 200)) for w in cpu_workloads()]
    monkeypatch.setattr(bench, "cpu_workloads", lambda divisor: list(dict.fromkeys(tiny)))


def test_a_quick_run_prints_every_operation_and_writes_its_records(tmp_path, capsys):
    file = tmp_path / "results.jsonl"
    assert cli.main(["bench", "--quick", "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    records = read(file)
    assert records[0]["record"] == "machine"
    for record in records[1:]:
        assert record["operation"] in shown
        assert record["wrong"] == []
        assert any(library.startswith("online-softmax") for library in record["seconds"])


def test_in_a_folder_the_file_is_named_after_the_device(tmp_path):
    assert cli.main(["bench", "--quick", "--only", "logsumexp", "--json", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["cpu.jsonl"]
    assert len(read(tmp_path / "cpu.jsonl")) > 1


def test_after_the_minutes_given_nothing_is_started_and_what_is_left_is_said(tmp_path, monkeypatch, capsys):
    clock = iter(range(0, 10**6, 61))
    monkeypatch.setattr(bench, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    file = tmp_path / "results.jsonl"
    work = bench.cpu_workloads(1)
    assert cli.main(["bench", "--quick", "--minutes", "2", "--json", str(file)]) == 0
    done, skipped = ([r for r in read(file) if r["record"] == kind] for kind in ("workload", "skipped"))
    assert len(done) == 1
    assert [record["operation"] for record in skipped] == [w.operation for w in work[1:]]
    told = capsys.readouterr().err
    assert f"2 minutes were over before {len(work) - 1} of the shapes" in told
    assert "cross_entropy bfloat16 inplace (1)" in told


def test_a_wrong_answer_of_ours_is_not_timed_and_fails(monkeypatch, capsys):
    monkeypatch.setattr(contestants.osm, "cross_entropy", lambda x, t, **options: 2 * x.float().logsumexp(-1).mean())
    assert cli.main(["bench", "--quick", "--only", "cross_entropy"]) == 1
    captured = capsys.readouterr()
    assert "online-softmax is wrong at cross_entropy" in captured.err
    assert "cross_entropy 4 x 200" not in captured.out


def test_a_picture_is_drawn(tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    path = tmp_path / "picture.svg"
    assert cli.main(["bench", "--quick", "--only", "softmax", "--plot", str(path)]) == 0
    assert path.read_text().startswith("<svg")


def _shape_of_its_own(workload):
    return workload._replace(rows=3, columns=130, way="cold")


@pytest.mark.parametrize("workload", sorted(set(map(_shape_of_its_own, cuda_workloads(2**12)))), ids=str)
def test_every_kind_of_work_on_the_gpu_s_list_is_right_on_the_cpu_too(workload):
    record = Runner("cpu", quick=True).measure(workload)
    assert record["wrong"] == []
    assert set(record["refused"]) <= {"torch.compile"}
    assert json.loads(json.dumps(record)) == record


def test_the_gpu_s_list_has_the_shapes_that_are_promised():
    work = cuda_workloads()
    big = [w for w in work if w.way == "cold" and w.rows > 64]
    assert all(w.rows * w.columns >= 0.99 * 2**28 for w in big)
    assert all(w.rows >= 4096 for w in work if w.operation == "cross_entropy" and w.way == "cold")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--only", "nothing"], "--only is 'nothing'; wanted one of softmax"),
        (["--only", ""], "--only is ''; wanted one of softmax"),
        (["--minutes", "0"], "--minutes is 0; wanted more than 0"),
        (["--plot", "a.png"], "wanted a name that ends in .svg"),
        (["--plot", "no/such/folder/a.svg"], "cannot write to --plot no/such/folder/a.svg: there is no directory"),
        (["--json", "no/such/folder/a.jsonl"], "cannot write to --json no/such/folder/a.jsonl: there is no directory"),
        (["--json", ""], "--json is ''; wanted the name of a file"),
    ],
)
def test_mistakes_are_one_plain_line(argv, message, capsys):
    assert cli.main(["bench", *argv]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_cuda_run_says_so(capsys):
    assert cli.main(["bench", "--device", "cuda"]) == 2
    assert "torch sees no CUDA device" in capsys.readouterr().err

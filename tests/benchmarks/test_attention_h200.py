"""benchmarks/attention_h200.py: its records are checked, and are what the tables are made of."""

import importlib.util
from pathlib import Path

import pytest
import torch

from online_softmax.bench import tables
from online_softmax.bench.tables import OURS

PATH = Path(__file__).parents[2] / "benchmarks" / "attention_h200.py"


@pytest.fixture
def script(monkeypatch):
    spec = importlib.util.spec_from_file_location("attention_h200", PATH)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "ROWS", 64)
    monkeypatch.setattr(script, "HEADS", 2)
    monkeypatch.setattr(script, "medians", lambda calls: dict.fromkeys(calls, 2.0))
    monkeypatch.setattr(tables, "FEW_ELEMENTS", 1)
    return script


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_records_and_tables(script, monkeypatch, dtype):
    def failing(*_):
        raise RuntimeError("no such compiler")

    monkeypatch.setattr(script, "compiled", lambda _: failing)
    found = [script.forward(2, dtype, "cpu", True), script.backward(2, dtype, "cpu")]
    assert [record["wrong"] for record in found] == [[], []]
    assert set(found[0]["seconds"]) == {OURS, f"{OURS}, lists", "torch"}
    assert set(found[1]["seconds"]) == {OURS, "torch"}
    assert found[0]["refused"]["torch.compile"] == "RuntimeError: no such compiler"
    size = dtype.itemsize * 128
    assert found[0]["traffic"] == pytest.approx(3 * (size + 4) / (2 * size))  # two read, one written, of two
    titles = {table.title: table for table in tables.of([{"device": "cuda", "record": "machine"}, *found])}
    assert list(titles) == ["merge_attention, fraction of copy", "merge_attention backward, fraction of copy"]
    table = titles["merge_attention, fraction of copy"]
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["ours"] == f"{found[0]['traffic'] / 2:.2f}"
    assert row["torch.compile"] == "fails"


def test_a_wrong_answer_is_found_and_not_timed(script, monkeypatch):
    monkeypatch.setattr(script.osm, "merge_attention", lambda outs, lses: (outs[0], lses[0]))
    found = script.forward(2, torch.float32, "cpu", False)
    assert found["wrong"] == [OURS, f"{OURS}, lists"]
    assert set(found["seconds"]) == {"torch"}

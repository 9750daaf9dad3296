"""The tables in the documents are those of the result files."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "tables.py"
specification = importlib.util.spec_from_file_location("benchmark_tables", SCRIPT)
documents = importlib.util.module_from_spec(specification)
specification.loader.exec_module(documents)


@pytest.mark.parametrize("name", documents.DOCUMENTS)
def test_the_tables_of_a_document_are_up_to_date(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert documents.updated(text) == text, "run python benchmarks/tables.py"


def _results(folder, records):
    (folder / "box.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def test_a_table_is_put_between_its_marks_and_putting_it_twice_changes_nothing(tmp_path, cpu_records):
    results = _results(tmp_path, cpu_records)
    text = "before\n<!-- bench:box CPU -->\nold\n<!-- /bench -->\nafter\n"
    once = documents.updated(text, results)
    assert once.startswith("before\n<!-- bench:box CPU -->\n")
    assert once.endswith("<!-- /bench -->\nafter\n")
    assert "old" not in once
    assert "| logsumexp 2048 x 32000, fp32 |" in once
    assert "Targets" not in once
    assert documents.updated(once, results) == once


def test_without_a_title_every_table_of_measurements_stands_there(tmp_path, cpu_records):
    results = _results(tmp_path, cpu_records)
    text = documents.updated("<!-- bench:box -->\n<!-- /bench -->", results)
    assert "**CPU**" in text
    assert "**Targets**" not in text
    assert "**Targets**" in documents.updated("<!-- bench:box Targets -->\n<!-- /bench -->", results)


def test_a_place_may_wait_for_its_file_and_says_so(tmp_path, cpu_records):
    waits = "<!-- bench:box CPU -->\nNot measured yet.\n<!-- /bench -->"
    assert documents.updated(waits, tmp_path) == waits
    assert "| logsumexp 2048 x 32000, fp32 |" in documents.updated(waits, _results(tmp_path, cpu_records))
    with pytest.raises(FileNotFoundError):
        documents.updated(waits.replace("box", "bax").replace("Not measured yet.", "| old |"), tmp_path)


def test_an_unknown_title_is_told_with_those_there_are(tmp_path, cpu_records):
    with pytest.raises(ValueError, match="it has CPU"):
        documents.updated("<!-- bench:box Nothing -->\n<!-- /bench -->", _results(tmp_path, cpu_records))

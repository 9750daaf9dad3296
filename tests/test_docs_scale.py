"""docs/scale.md: its code runs, and what it predicts agrees with the kept measurement."""

import json
import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
TEXT = (PROJECT / "docs" / "scale.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page():
    names: dict = {"__name__": "scale"}
    code = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
    exec(compile(code, "docs/scale.md", "exec"), names)
    return names


def test_every_number_follows_from_the_formulas(page, capsys):
    assert page["two"]["seconds"] > 0


def measured():
    for path in sorted((PROJECT / "benchmarks" / "results").rglob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            fact = json.loads(line)
            if fact.get("time") == "cross_entropy forward + backward" and fact.get("by") == "online_softmax":
                yield fact


def test_the_prediction_is_near_the_measurement(page):
    facts = list(measured())
    if not facts:
        pytest.skip("no two-device measurement is kept yet")
    for fact in facts:
        predicted = page["cross_entropy"](fact["rows"], fact["classes"], 2, page["h200"])["seconds"]
        assert page["within_a_factor"](fact["ms"], predicted), (fact["ms"], predicted)

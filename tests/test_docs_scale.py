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


def measured(of):
    """The kept lines about two devices that tell a time of this."""
    path = PROJECT / "benchmarks" / "results" / "distributed-h200.jsonl"
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [fact for fact in found if fact.get("time") == of]


def test_the_prediction_for_cross_entropy_is_near_the_measurement(page):
    facts = [fact for fact in measured("cross_entropy forward + backward") if fact["by"] != "loss_parallel"]
    assert facts
    for fact in facts:
        smoothing = "smoothing" in fact["by"]
        predicted = page["cross_entropy"](fact["rows"], fact["classes"], 2, page["h200"], smoothing=smoothing)
        assert page["within"](fact["ms"], predicted["seconds"] * 1e3, 0.25), (fact["ms"], predicted)


def test_the_ring_hides_its_link(page):
    facts = measured("ring_attention forward + backward")
    assert {fact["causal"] for fact in facts} == {True, False}
    for fact in facts:
        shape = (fact["tokens"], 16, 16, 128)
        one, two = (page["ring_attention"](*shape, ranks, page["h200"], fact["causal"]) for ranks in (1, 2))
        assert not two["bound by the link"]
        predicted = two["seconds"] / one["seconds"]  # of the time that one device takes for everything
        assert page["within"](fact["ms"] / fact["one_device_ms"], predicted, 0.5), (fact, predicted)

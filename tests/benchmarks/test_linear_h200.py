"""benchmarks/linear_h200.py runs, and a peer that fails is a row with its error."""

import importlib.util
import json
from pathlib import Path

PATH = Path(__file__).parents[2] / "benchmarks" / "linear_h200.py"


def test_a_tiny_run(monkeypatch, capsys):
    monkeypatch.syspath_prepend(PATH.parent)
    spec = importlib.util.spec_from_file_location("linear_h200", PATH)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    def failing():
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(importlib.import_module("linear_contestants"), "torch_chunked", failing)
    monkeypatch.setattr(script, "TINY", [(40, 8, 60)])
    script.main(["--tiny"])
    rows = {row.get("library"): row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["F.linear_cross_entropy"]["refused"] == "RuntimeError: no such kernel"
    assert rows["product"]["products"] == 1.0
    for name in ("online-softmax", "online-softmax, least memory"):
        assert rows[name]["dw"] <= 1.1 * rows["torch"]["dw"]
        assert rows[name]["loss"] < 1e-3

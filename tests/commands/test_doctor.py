"""``online-softmax doctor`` runs anywhere and names what is missing."""

import json
import subprocess
import sys

from online_softmax import cli
from online_softmax.commands import doctor


def test_it_names_every_implementation_and_package(capsys):
    assert cli.main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for word in ("reference", "cpu", "cuda", *doctor.PACKAGES, "huge pages", "cores available"):
        assert word in shown


def test_json_holds_the_same(capsys):
    assert cli.main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["implementations"]["reference"]["available"] is True
    assert set(report) == {"online-softmax", "implementations", "packages", "machine"}


def test_it_runs_with_nothing_optional_installed():
    program = (
        "import sys\n"
        "for name in 'torch', 'rich', 'scipy', 'cuda', 'altair', 'marimo': sys.modules[name] = None\n"
        "from online_softmax import cli\n"
        "sys.exit(cli.main(['doctor']))"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    assert "reference" in child.stdout


def test_a_torch_that_does_not_load_is_a_finding(monkeypatch):
    monkeypatch.setattr(doctor, "version", lambda package: "2.0")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "does not load" in doctor.machine()["torch"]


def test_the_huge_page_setting_is_the_word_in_brackets(monkeypatch, tmp_path):
    setting = tmp_path / "enabled"
    monkeypatch.setattr(doctor, "HUGE_PAGES", setting)
    assert doctor.huge_pages() == "unknown"
    setting.write_text("always [madvise] never\n")
    assert doctor.huge_pages() == "madvise"

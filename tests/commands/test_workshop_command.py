import pytest

from online_softmax.cli import main
from online_softmax.commands import workshop


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("", "--export is ''; wanted the name of a file"),
        ("page.pdf", "--export is page.pdf; wanted a name that ends in .html"),
        ("no/such/directory/page.html", "cannot write to --export no/such/directory/page.html: there is no directory"),
    ],
)
def test_a_page_that_cannot_be_written_starts_nothing(given, text, capsys, monkeypatch):
    monkeypatch.setattr(workshop, "_require_packages", lambda serving: pytest.fail("started"))
    assert main(["workshop", "--export", given]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1

"""docs/ladder.md: its Python and its commands run, its C++ and CUDA are the rungs', its figures the kept ones."""

import re
import shlex
from pathlib import Path

import pytest

from online_softmax.cli import main
from online_softmax.ladder import cpu, page

PROJECT = Path(__file__).parents[1]
TEXT = (PROJECT / "docs" / "ladder.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)


def blocks(language):
    return [body for name, body in BLOCKS if name == language]


def test_every_block_is_of_a_kind_that_is_tested_here():
    assert {name for name, _ in BLOCKS} == {"console", "python", "cpp", "cuda"}


@pytest.mark.skipif(cpu.missing() is not None, reason="the ladder's C++ rungs are not built")
def test_the_python_runs_from_top_to_bottom():
    exec(compile("\n".join(blocks("python")), "docs/ladder.md", "exec"), {})


@pytest.mark.parametrize("body", blocks("cpp") + blocks("cuda"))
def test_compiled_code_is_quoted_from_a_rung(body):
    folder = PROJECT / "src" / "online_softmax" / "ladder"
    sources = [path.read_text(encoding="utf-8") for path in [*folder.glob("cpu/*"), *folder.glob("cuda/*")]]
    assert any(body in source for source in sources)


@pytest.mark.skipif(cpu.missing() is not None, reason="the ladder's C++ rungs are not built")
@pytest.mark.parametrize("command", [line for body in blocks("console") for line in body.splitlines()])
def test_commands_run(command, tmp_path, monkeypatch):
    dollar, program, *words = shlex.split(command)
    assert (dollar, program) == ("$", "online-softmax")
    if "--plot" in words:
        pytest.importorskip("altair")
        pytest.importorskip("vl_convert")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cpu, "SHAPES", ((32, 1000),))
    assert main([*words, "--no-compile"]) == 0


def test_its_tables_are_those_of_the_kept_results():
    assert page.fill(TEXT, PROJECT) == TEXT


def test_what_it_links_to_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (PROJECT / "docs" / target).exists(), target

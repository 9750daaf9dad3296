"""The command line: finding subcommands, and mistakes answered in one line."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import online_softmax
from online_softmax import cli, terminal


def test_the_version_is_the_package_s(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.strip() == online_softmax.__version__


def test_python_m_runs_the_same_command():
    child = subprocess.run([sys.executable, "-m", "online_softmax", "--version"], capture_output=True, text=True)
    assert (child.returncode, child.stdout.strip()) == (0, online_softmax.__version__)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_itself(name, capsys):
    pytest.importorskip(f"online_softmax.commands.{name}", exc_type=ImportError)
    with pytest.raises(SystemExit) as stop:
        cli.main([name, "--help"])
    assert stop.value.code == 0
    assert cli.COMMANDS[name].help.split()[0] in capsys.readouterr().out


@pytest.mark.parametrize("argv", [[], ["no-such-command"], ["demo", "--no-such-option"]])
def test_bad_use_ends_with_code_2(argv, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    assert stop.value.code == 2
    assert "usage: online-softmax" in capsys.readouterr().err


def _replace_command(monkeypatch, run):
    module = importlib.import_module("online_softmax.commands.doctor")
    monkeypatch.setattr(module, "run", run)


def test_a_user_s_mistake_is_one_line_without_a_traceback(monkeypatch, capsys):
    def run(args):
        raise terminal.CommandError("--steps is 0; wanted at least 1")

    _replace_command(monkeypatch, run)
    assert cli.main(["doctor"]) == 2
    assert capsys.readouterr().err == "online-softmax doctor: --steps is 0; wanted at least 1\n"


def test_a_missing_package_is_named_with_what_to_install(monkeypatch, capsys):
    def run(args):
        importlib.import_module("a_package_nobody_has.part")

    _replace_command(monkeypatch, run)
    assert cli.main(["doctor"]) == 2
    message = capsys.readouterr().err
    assert "a_package_nobody_has" in message
    assert "pip install 'online-softmax[cli]'" in message


def test_a_defect_of_our_own_is_not_called_a_missing_package(monkeypatch):
    def run(args):
        importlib.import_module("online_softmax.no_such_module")

    _replace_command(monkeypatch, run)
    with pytest.raises(ModuleNotFoundError):
        cli.main(["doctor"])


def test_other_commands_are_not_imported():
    program = (
        "import sys; from online_softmax import cli; cli.main(['doctor', '--json']); "
        "assert not any(name.startswith('online_softmax.commands.demo') for name in sys.modules)"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr


def test_a_reader_that_stops_early_is_no_error():
    command = f"{sys.executable} -m online_softmax trace --n 100000 --block 10 | head -1"
    run = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert run.stdout
    assert not run.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("words", ["trace", "--version"])  # written by a command; by argparse, which ends the program
def test_output_that_cannot_be_written_is_one_line(words):
    command = [sys.executable, "-m", "online_softmax", words]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        child = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert child.returncode == 2
    assert child.stderr.startswith("online-softmax")
    assert "No space left on device" in child.stderr
    assert child.stderr.count("\n") == 1


def test_output_that_is_closed_is_no_error():
    command = f"{sys.executable} -m online_softmax trace >&-"
    child = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True)
    assert (child.returncode, child.stderr) == (0, "")


def test_too_little_memory_is_one_line(monkeypatch, capsys):
    def run(args):
        raise MemoryError

    _replace_command(monkeypatch, run)
    assert cli.main(["doctor"]) == 2
    assert capsys.readouterr().err == "online-softmax doctor: this machine's memory is not enough\n"

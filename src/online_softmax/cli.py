"""The command ``online-softmax``: finds the subcommand, imports that one only, and runs it."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import online_softmax

from .terminal import CommandError, note


class Command(NamedTuple):
    """What the list of subcommands says, and the extra that brings what the command needs."""

    help: str
    extra: str


COMMANDS = {
    "doctor": Command("show versions, implementations and the machine", "cli"),
    "demo": Command("train a small language model with cross_entropy and compare with torch", "torch"),
    "bench": Command("measure every operation against other libraries", "bench"),
    "trace": Command("show how the state of a row grows, block by block", "cli"),
    "ladder": Command("run the kernels from naive to fused, one idea a rung", "torch"),
    "workshop": Command("open the page that shows the algorithm at work", "workshop"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is 0 for success, 1 for a failed check, 2 for bad use or a full disk."""
    argv = sys.argv[1:] if argv is None else list(argv)
    chosen = next((word for word in argv if not word.startswith("-")), "")
    try:
        try:
            return _run(chosen, argv)
        finally:
            if sys.stdout:  # None where it was closed before the start
                sys.stdout.flush()  # what cannot be written shows here, and not when Python ends
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "online_softmax":
            raise
        return _fail(chosen, f"needs the package {error.name}: pip install '{_requirement(chosen)}'")
    except CommandError as error:
        return _fail(chosen, str(error))
    except BrokenPipeError:  # whoever read the output has had enough: `online-softmax doctor | head`
        _drop_output()
        return 1
    except OSError as error:
        _drop_output()
        return _fail(chosen, f"{error.filename or 'cannot write the output'}: {error.strerror or error}")
    except MemoryError:
        return _fail(chosen, "this machine's memory is not enough")
    except KeyboardInterrupt:
        return _fail(chosen, "interrupted", code=130)


def _run(chosen: str, argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="online-softmax", description="Softmax and its kin, online.")
    parser.add_argument("--version", action="version", version=online_softmax.__version__)
    subparsers = parser.add_subparsers(dest="command", metavar="command", required=True)
    # Only the chosen command's module is imported, so that what another one needs may be missing.
    modules: dict[str, ModuleType] = {}
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=command.help, description=command.help)
        if name == chosen:
            modules[name] = importlib.import_module(f".commands.{name}", __package__)
            modules[name].add_arguments(subparser)
    args = parser.parse_args(argv)
    return int(modules[args.command].run(args))


def _drop_output() -> None:
    """Lead output that cannot be written nowhere, or Python complains when it flushes at the end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _requirement(command: str) -> str:
    return f"online-softmax[{COMMANDS[command].extra}]"


def _fail(command: str, message: str, code: int = 2) -> int:
    note(f"{f'online-softmax {command}'.rstrip()}: {message}")
    return code

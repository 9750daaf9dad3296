"""The files that commands write, looked at before the work rather than after it."""

from __future__ import annotations

import os
from pathlib import Path

from ..terminal import CommandError


def to_write(option: str, given: str | None, suffix: str = "") -> Path | None:
    """The path of a file that can be written, None where none is given; a CommandError for anything else."""
    if given is None:
        return None
    path = Path(given)
    if given in ("", "-"):
        raise CommandError(f"{option} is {given!r}; wanted the name of a file")
    if path.suffix.lower() != suffix and suffix:
        raise CommandError(f"{option} is {path}; wanted a name that ends in {suffix}")
    folder = path.absolute().parent
    reason = None
    if path.is_dir():
        reason = "it is a directory"
    elif not folder.is_dir():
        reason = f"there is no directory {folder}"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        reason = "permission denied"
    if reason:
        raise CommandError(f"cannot write to {option} {path}: {reason}")
    return path


def check_apart(**paths: Path | None) -> None:
    """A CommandError if two options, by name, mean the same file: one would overwrite the other."""
    seen: dict[Path, str] = {}
    for option, path in paths.items():
        if path is None:
            continue
        other = seen.setdefault(path.resolve(), option)
        if other != option:
            raise CommandError(f"--{option} and --{other} are the same file, {path}; wanted one each")


def to_draw(option: str, given: str | None) -> Path | None:
    """The path of a picture that altair can draw."""
    path = to_write(option, given, ".svg")
    if path is not None:
        from ..charts import require_altair

        try:
            require_altair()
        except ImportError as error:
            raise CommandError(f"{option}: {error}") from None
    return path

"""Compiled kernels on disk, so that only the first process that needs one compiles it.

A cached file is code that will run with the user's rights: the folder must belong to the user, and nobody else may be
able to write to it.
"""

from __future__ import annotations

import os
import stat
import sys
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

_MAX_BYTES = 256 * 2**20  # about five thousand kernels; the least recently read go first


def folder() -> Path:
    """Where compiled kernels are kept: $XDG_CACHE_HOME/online-softmax/kernels, or the same under ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "online-softmax" / "kernels"


def shown(path: Path) -> str:
    """The path with "~" for the user's home: what is printed and kept in results names nobody."""
    home = Path.home()
    return f"~/{path.relative_to(home).as_posix()}" if path.is_relative_to(home) else str(path)


def refusal(path: Path) -> str | None:
    """Why `path` may not be used, or None.  It is made, private, when it does not exist."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        return f"cannot be used ({error})"
    if sys.platform == "win32":
        return None
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written to by others (mode {stat.S_IMODE(status.st_mode):o}; chmod 700 it)"
    return None


@lru_cache(maxsize=1)
def on_disk() -> Any:
    """The cache of this user, a mapping from bytes to cubins; an empty dict, with one warning, where none is safe."""
    from cuda.core.utils import FileStreamProgramCache

    path = folder()
    reason = refusal(path)
    if reason is None:
        try:
            return FileStreamProgramCache(path, max_size_bytes=_MAX_BYTES)
        except OSError as error:
            reason = f"cannot be used ({error})"
    warnings.warn(
        f"online_softmax: the kernel cache {path} {reason}; kernels are compiled anew in every process",
        RuntimeWarning,
        stacklevel=2,
    )
    return {}

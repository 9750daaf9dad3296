"""Launches kept ready.

What lies between a small call and its kernel are questions about shapes, strides and alignment that had the same
answers the last time.  A key of everything they depend on finds the kernel, the grid and the arguments that follow the
pointers; only what needs no copy and one launch is kept.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from .launch import Loaded

_KEPT = 4096


class Ready(NamedTuple):
    """A launch without its pointers: `kernel(grid, *pointers, *rest)`."""

    kernel: Loaded
    grid: int
    rest: tuple[int | float, ...]
    on: tuple[Any, ...] = ()
    """The same for one who has the stream: `launch_on(stream, *on, *pointers, *rest)`."""


_ready: dict[Hashable, Any] = {}

find = _ready.get


def keep(key: Hashable, launch: Ready) -> None:
    """Let `find(key)` return it, with `on` filled in."""
    keep_any(key, launch._replace(on=launch.kernel.ready(launch.grid)))


def keep_any(key: Hashable, found: Any) -> None:
    """Let `find(key)` return what was found."""
    if len(_ready) >= _KEPT:  # as many shapes will not come back soon
        _ready.clear()
    _ready[key] = found

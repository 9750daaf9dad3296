"""CUDA C++ to machine code with NVRTC.  Needs no GPU and no CUDA toolkit."""

from __future__ import annotations

import contextlib
import hashlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from .cache import on_disk

_PACKAGE = Path(__file__).resolve().parent.parent


class Source(NamedTuple):
    """A kernel to compile: file (relative to the package), entry point, and the macros that shape it."""

    file: str
    entry: str
    macros: tuple[tuple[str, str], ...]


@cache
def _fingerprint() -> bytes:
    """Of every file a kernel may include, and of the compiler."""
    from cuda.bindings import nvrtc

    digest = hashlib.sha256(repr(nvrtc.nvrtcVersion()).encode())
    for path in sorted([*_PACKAGE.rglob("*.cu"), *_PACKAGE.rglob("*.cuh"), *_PACKAGE.rglob("*.h")]):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.digest()


def build(source: Source, arch: str, logs: Any = None) -> bytes:
    """Compile to a cubin for `arch` ("sm_90").  The assembler's resource report goes to `logs`, a text stream."""
    from cuda.core import Program, ProgramOptions

    path = _PACKAGE / source.file
    options = ProgramOptions(
        name=path.name,
        arch=arch,
        std="c++20",
        include_path=str(path.parent),
        define_macro=list(source.macros),
        ptxas_options=None if logs is None else "-v",
    )
    return bytes(Program(path.read_text(), "c++", options).compile("cubin", logs=logs).code)


def cubin(source: Source, arch: str) -> bytes:
    """The machine code of `source`, all entry points of its file; from the disk if any process compiled it."""
    key = hashlib.sha256(_fingerprint() + repr((source.file, source.macros, arch)).encode()).digest()
    cache = on_disk()
    try:
        return bytes(cache[key])
    except (KeyError, OSError):
        code = build(source, arch)
    with contextlib.suppress(OSError):  # a full or read-only disk costs the next process a compilation, nothing else
        cache[key] = code
    return code

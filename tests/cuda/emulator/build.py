"""Kernels' sources to shared libraries, with g++."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path

from tests.cuda.emulator.translate import entries, translate

import online_softmax
from online_softmax._cuda.compile import Source

PACKAGE = Path(online_softmax.__file__).parent
_HERE = Path(__file__).parent
_OURS = sorted([*_HERE.glob("*.h"), *_HERE.glob("*.cpp"), _HERE / "translate.py"])
_FLAGS = (
    "-std=c++20",
    "-O1",
    "-march=native",
    "-fexpensive-optimizations",  # with fused multiply-adds, as on a GPU, if not in every place
    "-fno-math-errno",
    "-fno-strict-aliasing",  # kernels take 16 bytes for what elements they like
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-gnu-unique",  # every library has its own machine
    "-w",
)


@cache
def compiler() -> str | None:
    """g++, if it is one that knows 16-bit floating point and this is Linux, whose fibers the machine uses."""
    found = shutil.which("g++") if sys.platform == "linux" else None
    if found is None:
        return None
    version = subprocess.run([found, "-dumpversion"], capture_output=True, text=True).stdout
    return found if int(version.split(".")[0] or 0) >= 12 else None


class Builder:
    """Compiles the library's kernels, each once for a folder that several processes may share."""

    def __init__(self, folder: Path, package: Path = PACKAGE) -> None:
        self._folder, self.package = folder, package

    def library(self, source: Source) -> ctypes.CDLL:
        """The kernels of a source's file, compiled for its macros."""
        main = self._sources / source.file
        name = f"{main.stem}-{_digest(repr((main, source.macros)).encode())}.so"
        lines = [f'#include "{_HERE / "device.h"}"', f'#include "{main}"']
        lines += [f"EMULATED_ENTRY({entry})" for entry in entries((self.package / source.file).read_text())]
        macros = [f"-D{name}={value}" for name, value in source.macros]
        return ctypes.CDLL(str(self._once(name, "\n".join(lines), *macros, "-shared", str(self._machine))))

    @cached_property
    def _machine(self) -> Path:
        """The object file that every library has in it."""
        return self._once(f"machine-{_digest(*_contents(_OURS))}.o", f'#include "{_HERE / "machine.cpp"}"\n', "-c")

    @cached_property
    def _sources(self) -> Path:
        """The package's headers and kernels, translated; named by what is in them and in ours."""
        found = sorted(path for kind in ("*.cu", "*.cuh", "state.h") for path in self.package.rglob(kind))
        folder = self._folder / f"sources-{_digest(*_contents([*found, *_OURS]))}"
        if not folder.exists():
            mine = folder.with_suffix(f".{os.getpid()}")
            for path in found:
                to = mine / path.relative_to(self.package)
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_text(translate(path.read_text()))
            _keep_first(mine, folder)
        return folder

    def _once(self, name: str, code: str, *flags: str) -> Path:
        """The file that g++ makes of `code`, unless another process has made it."""
        made = self._folder / name
        if not made.exists():
            mine = self._folder / f"{os.getpid()}-{name}"
            text = mine.with_suffix(".cpp")
            text.write_text(code)
            done = subprocess.run(
                [str(compiler()), *_FLAGS, str(text), *flags, "-o", str(mine)], capture_output=True, text=True
            )
            if done.returncode:
                raise RuntimeError(f"g++ does not compile {code.splitlines()[-1]}:\n{done.stderr[:4000]}")
            _keep_first(mine, made)
        return made


def _digest(*contents: bytes) -> str:
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:16]


def _contents(paths: Iterable[Path]) -> Iterator[bytes]:
    for path in paths:
        yield path.name.encode()
        yield path.read_bytes()


def _keep_first(mine: Path, shared: Path) -> None:
    try:
        mine.rename(shared)
    except OSError:  # another process was first, with the same
        assert shared.exists()

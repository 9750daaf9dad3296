"""Building from source where something is missing says what."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CMAKE = shutil.which("cmake")


@pytest.mark.skipif(CMAKE is None, reason="needs cmake")
def test_without_a_compiler_the_build_names_what_to_install(tmp_path):
    empty = tmp_path / "bin"
    empty.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in ("CXX", "CC")}
    command = [
        CMAKE,
        "-S",
        str(ROOT),
        "-B",
        str(tmp_path / "build"),
        "-G",
        "Unix Makefiles",
        "-DCMAKE_MAKE_PROGRAM=true",
    ]
    run = subprocess.run(command, env=environment | {"PATH": str(empty)}, capture_output=True, text=True, check=False)
    assert run.returncode != 0
    said = " ".join(run.stderr.split())
    assert "no C++ compiler was found" in said
    assert "g++ 11 or clang++ 14, or newer" in said

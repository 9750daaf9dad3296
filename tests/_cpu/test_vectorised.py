"""Every hot loop of the kernels is vectorised, in every build.

The body of a hot loop carries the comment `// hot: <what it does>`.  The compiler is asked which loops it vectorised,
and how widely; a loop that is compiled several times (for float and double, and wherever it is inlined) must be
vectorised with whole vectors at least once.  What the compiler said while the library was built is on disk where the
build was made here and no source is newer; otherwise it is asked again.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "online_softmax"
SOURCES = sorted(path for path in PACKAGE.glob("ops/*/cpu*.cpp") if path.stem != "cpu_bindings")  # no loops there
MARK = re.compile(r"// hot: (.+)")
COMPILER = shutil.which("g++")


def flags_from_cmake():
    """The flags the kernels are built with, so that this test cannot drift from them."""
    text = (ROOT / "CMakeLists.txt").read_text()
    common = re.search(r"set\(kernel_flags (.+?)\)", text, re.DOTALL)[1].split()
    alignment = re.search(r"APPEND kernel_flags (.+?)\)", text)[1].split()
    builds = dict(re.findall(r"add_kernels\((\w+)([^)]*)\)", text))
    return [*common, *alignment], {name: extra.split() for name, extra in builds.items() if name != "instruction_set"}


COMMON, BUILDS = flags_from_cmake()
WIDTH = {"baseline": 16, "avx2": 32, "avx512": 64}


def hot_loops():
    """{(file, line): name} of every marked loop."""
    found = {}
    for path in sorted([*PACKAGE.glob("_cpu/*.h"), *PACKAGE.glob("ops/*/cpu*")]):
        if path.suffix in (".h", ".cpp"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if mark := MARK.search(line):
                    found[path.resolve(), number] = mark[1]
    return found


def written(path):
    return path.stat().st_mtime_ns


def kept_report(source, build):
    """What the compiler said of `source` when the library was built, or None if not from the sources as they are."""
    name = f"build/*/CMakeFiles/kernels_{build}.dir/{source.relative_to(ROOT)}.o.vec"
    kept = max(ROOT.glob(name), key=written, default=None)
    inputs = [ROOT / "CMakeLists.txt", source, *PACKAGE.rglob("*.h")]
    return kept.read_text() if kept and written(kept) > max(map(written, inputs)) else None


def report_now(source, build):
    command = [COMPILER, "-std=c++20", *COMMON, *BUILDS[build], f"-DONLINE_SOFTMAX_ISA={build}"]
    command += ["-fopt-info-vec-optimized", "-S", "-o", "/dev/null", str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stderr


def vectorised(report):
    """(file, line) -> widths in bytes, as the compiler reports them."""
    loops = {}
    for file, line, width in re.findall(r"(\S+?):(\d+):\d+: optimized: +loop vectorized using (\d+) byte", report):
        loops.setdefault(((ROOT / file).resolve(), int(line)), set()).add(int(width))
    return loops


@pytest.mark.skipif(COMPILER is None or platform.machine() != "x86_64", reason="needs g++ on x86-64")
@pytest.mark.parametrize("build", BUILDS)
def test_hot_loops_are_vectorised(build):
    wanted = hot_loops()
    assert len(wanted) > 15
    with ThreadPoolExecutor() as pool:
        reports = list(pool.map(lambda source: kept_report(source, build) or report_now(source, build), SOURCES))
    found = {}
    for report in reports:
        for loop, widths in vectorised(report).items():
            found.setdefault(loop, set()).update(widths)
    scalar = {
        f"{path.name}:{line} {name}"
        for (path, line), name in wanted.items()
        if WIDTH[build] not in found.get((path, line), ())
    }
    assert not scalar


@pytest.mark.skipif(COMPILER is None or platform.machine() != "x86_64", reason="needs g++ on x86-64")
def test_a_loop_with_a_branch_is_caught(tmp_path):
    source = tmp_path / "scalar.cpp"
    source.write_text(
        "extern void call();\n"
        "void f(float* x, long n) {\n"
        "    for (long i = 0; i < n; ++i) if (x[i] > 0) call();  // hot: nothing\n"
        "}\n"
    )
    assert vectorised(report_now(source, "avx2")) == {}

"""The rungs as something to read, and the CUDA rungs compiled where there is no GPU."""

from pathlib import Path

import pytest

import online_softmax.ladder
from online_softmax.ladder import cpu, cuda, rung

FOLDER = Path(online_softmax.ladder.__file__).parent
CPU_FILES = sorted((FOLDER / "cpu").glob("*.cpp"))
CUDA_FILES = sorted((FOLDER / "cuda").glob("*.cu"))

if not CPU_FILES:
    pytest.skip("the C++ sources are not part of an installed package", allow_module_level=True)


@pytest.mark.parametrize("path", [*CPU_FILES, *CUDA_FILES], ids=lambda path: path.name)
def test_a_rung_is_under_100_lines_and_opens_by_saying_what_it_is(path):
    lines = path.read_text().splitlines()
    assert len(lines) < 100
    assert lines[0].startswith("// ")


def test_the_same_rungs_exist_for_both():
    assert {path.stem for path in CUDA_FILES} == set(cuda.FILES)
    # On a CPU the two kinds of online update differ in speed, and both are shown.
    assert {path.stem for path in CPU_FILES} - {"bindings", "online_element"} == set(cuda.FILES)


def test_every_rung_has_an_idea_to_print():
    assert all(found.idea for found in [*cpu.rungs(), *cuda.rungs()])
    assert set(rung.CLAIMS) == {"naive", "three-pass", "online", "fused"}


# Every dtype of every rung; every rung and every dtype for every architecture.
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
COMPILED = [
    (name, dtype, ARCHITECTURES[(i + j) % len(ARCHITECTURES)])
    for i, name in enumerate(cuda.FILES)
    for j, dtype in enumerate(cuda.DTYPES)
]


@pytest.mark.parametrize(("name", "dtype", "architecture"), COMPILED)
def test_every_cuda_rung_compiles_without_a_gpu(name, dtype, architecture):
    pytest.importorskip("cuda.core", reason="cuda-core, which compiles the CUDA rungs, is not installed")
    compile_ = pytest.importorskip("online_softmax._cuda.compile")
    source = compile_.Source(f"ladder/cuda/{name}.cu", "rung", (("ELEMENT", cuda.ELEMENTS[dtype]),))
    assert len(compile_.build(source, architecture)) > 1000

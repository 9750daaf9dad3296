"""Every kernel of the default geometries compiles, and keeps its numbers in registers.  Needs NVRTC, not a GPU."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from io import StringIO
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.core")

from online_softmax._cuda import compile as compiler  # noqa: E402
from online_softmax._cuda import geometry  # noqa: E402
from online_softmax._cuda.compile import Source  # noqa: E402
from online_softmax._cuda.limits import Limits, limits_of  # noqa: E402
from online_softmax.ops.cross_entropy.switches import Switches  # noqa: E402
from online_softmax.ops.cross_entropy.switches import backward as plan_loss_backward  # noqa: E402
from online_softmax.ops.cross_entropy.switches import batch as plan_batch  # noqa: E402
from online_softmax.ops.cross_entropy.switches import plan as plan_loss  # noqa: E402
from online_softmax.ops.softmax import plans  # noqa: E402

BF16, F32, F64 = torch.bfloat16, torch.float32, torch.float64
OFF = Switches(torch.int64, False, False, False, False, False, False, True)
ON = Switches(torch.int64, True, True, True, True, True, True, True)
PROBABILITIES = ON._replace(target=F32)
# Of each kind and dtype, so many shapes at most: every one is compiled here, and again at a user's.
MOST = {"forward": 29, "logsumexp": 13, "backward": 25, "loss": 22, "capped loss": 14, "loss in registers": 10}
LOSSES = {"loss": OFF, "capped loss": ON._replace(aux=False), "loss in registers": OFF._replace(aux=True)}
LARGEST = 262144


def _shape(found: tuple[geometry.Geometry, *tuple[int, ...]] | None) -> geometry.Geometry | None:
    return found and found[0]


def geometries_of(kind: str, dtype: torch.dtype, limits: Limits) -> dict[geometry.Geometry, int]:
    """Each shape of the table, with a row length (in words) that leads to it."""
    choose = {
        "forward": lambda words: plans.forward(0, words, dtype.itemsize, limits).shape,
        "logsumexp": lambda words: plans.forward(2, words, dtype.itemsize, limits).shape,
        "backward": lambda words: plans.backward(words, dtype.itemsize, limits).shape,
        "loss in registers": lambda words: geometry.loss_in_registers(words, dtype.itemsize, limits, 1),
        "loss": lambda words: _shape(geometry.loss_staged(words, limits, weighted=False, gradient=True)),
        "capped loss": lambda words: _shape(geometry.loss_capped(words, dtype.itemsize, limits)),
    }[kind]
    found: dict[geometry.Geometry, int] = {}
    words = 1 if not kind.endswith("loss") else 129  # shorter rows are taken within a warp
    while words < 2**20 and (shape := choose(words)) is not None:
        found.setdefault(shape, words)
        words += 1 + words // 64
    return found


def sources_of(limits: Limits, whole_table: bool, half: int | None = None) -> set[Source]:
    """Of the table whole, or the smallest and the largest of each operation, with no option and with all of them.

    Two families with the same shapes share the dtypes: `half` 0 has the smallest in one and the largest in the other.
    """
    found: set[Source] = set()
    operations = range(2) if whole_table else range(1)
    for dtype, kind in itertools.product((BF16, F32), MOST):
        size, words = dtype.itemsize, list(geometries_of(kind, dtype, limits).values())
        ends = (words[0], words[-1]) if half is None else (words[(dtype == F32) ^ half and -1],)
        for count in words if whole_table else ends:
            for operation in operations:
                if kind == "forward":
                    found.update(plans.forward(operation, count, size, limits).sources(operation, dtype, dtype))
                elif kind == "backward":
                    found.update(plans.backward(count, size, limits).sources(operation, dtype, dtype))
            if kind == "logsumexp":
                found.update(plans.forward(2, count, size, limits).sources(2, dtype, F32))
            elif kind in LOSSES:
                found.update(plan_loss(count, dtype, LOSSES[kind], limits).sources(dtype, LOSSES[kind]))
    weighted = OFF._replace(smoothing=True, weighted=True)
    some = (OFF._replace(gradient=False), weighted, OFF._replace(softcap=True), OFF._replace(scaled=True))
    chosen = [(switches, LARGEST) for switches in some] + [(weighted, 16000)]
    for dtype, (switches, length) in _shared(half, (BF16, F32), chosen):
        words = geometry.words_of(length, dtype.itemsize, False)
        found.update(plan_loss(words, dtype, switches, limits).sources(dtype, switches))
    lengths = (1500, LARGEST) if whole_table else (LARGEST,)
    late = (OFF, ON._replace(aux=False), PROBABILITIES._replace(aux=False))
    for dtype, switches, length in _shared(half, (BF16, F32), late, lengths):
        words = geometry.words_of(length, dtype.itemsize, False)
        found.update(plan_loss_backward(words).sources(dtype, switches))
    for dtype, words in itertools.product((BF16, F32), (16, 32, 64, 128) if whole_table else (128,)):
        found.update(plan_batch(1, words).sources(dtype, ON._replace(aux=False)))
    for switches in (ON, PROBABILITIES):
        words = geometry.words_of(5000, 2, False)
        found.update(plan_loss(words, BF16, switches, limits).sources(BF16, switches))
    beyond = geometry.words_of(4 * LARGEST, 2, False)
    for count, size in ((beyond, 2), (2 * beyond, 4)):  # in shared memory, and split
        dtype = BF16 if size == 2 else F32
        found.update(plans.forward(0, count, size, limits).sources(0, dtype, dtype))
        found.update(plans.backward(count, size, limits).sources(0, dtype, dtype))
    found.update(plans.logsumexp_backward(beyond, 2).sources(2, BF16, BF16))
    found.update(
        plans.columns(operation, backward, BF16, BF16, 32) for operation in range(2) for backward in (False, True)
    )
    return set({(source.file, source.macros): source for source in found}.values())


def _shared(half: int | None, *values: Sequence[Any]) -> Iterator[Any]:
    return itertools.islice(itertools.product(*values), half, None, None if half is None else 2)


def spills(job: tuple[Source, str]) -> tuple[str, int]:
    """The most bytes any kernel of the file spills."""
    log = StringIO()
    try:
        compiler.build(*job, logs=log)
    except Exception as error:
        return str(error)[:2000], -1
    return str(job), max(int(count) for count in re.findall(r"(\d+) bytes spill stores", log.getvalue()))


def check(sources: set[Source], arch: str) -> None:
    jobs = [(source, arch) for source in sources]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(spills, jobs, chunksize=2))
    assert results
    assert not [text for text, spilled in results if spilled < 0]
    assert not [found for found in results if found[1] > 0]


def test_the_whole_table_of_hopper():
    check(sources_of(limits_of((9, 0)), whole_table=True), "sm_90")


@pytest.mark.parametrize(
    ("capability", "half"), [((8, 0), None), ((8, 6), 0), ((8, 9), 1), ((10, 0), None), ((12, 0), None)]
)
def test_smallest_and_largest_of_other_families(capability, half):
    limits = limits_of(capability)
    check(sources_of(limits, whole_table=False, half=half), limits.arch)


def test_two_halves_are_a_whole():
    def compiled(capability, half=None):
        return {(file, macros) for file, _, macros in sources_of(limits_of(capability), whole_table=False, half=half)}

    assert compiled((8, 6), 0) | compiled((8, 9), 1) == compiled((8, 6)) == compiled((8, 9))


def test_a_thousand_lengths_share_a_few_dozen_shapes():
    limits = limits_of((9, 0))
    for dtype in (BF16, F32):
        for kind, most in MOST.items():
            assert len(geometries_of(kind, dtype, limits)) <= most, (kind, dtype)


def test_what_a_device_cannot_keep_is_split_and_no_grid_is_empty():
    limits = limits_of((9, 0))
    for largest in (16, 8, 4, 2, 1, 0):
        granted = limits._replace(largest_cluster=largest)
        for words in (17, 4097, 10000, 16385, 65536):
            for plan in (
                plan_loss(words, F32, OFF, granted),
                plans.forward(0, words, 4, granted),
                plans.backward(words, 4, granted),
            ):
                assert plan.shape.cluster <= max(1, largest)
                assert "split" in plan.file or words <= plan.shape.words
                assert plan.shape.grid(3, 0) >= 1


def test_fp64_compiles():
    limits = limits_of((9, 0))
    words = geometry.words_of(5000, 8, False)
    jobs = [
        *plans.forward(0, words, 8, limits).sources(0, F64, F64),
        *plan_loss(words, F64, ON, limits).sources(F64, ON),
        *plan_loss_backward(words).sources(F64, ON),
    ]
    assert all(spills((source, "sm_90"))[1] >= 0 for source in jobs)

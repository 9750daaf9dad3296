"""The kernels between the reads of sharded logits compile without spilling.  Needs NVRTC, not a GPU."""

import itertools

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.core")

from tests.cuda.test_compiles import check, spills  # noqa: E402

from online_softmax._cuda.compile import Source  # noqa: E402


def sources(given, compute):
    macros = (("INPUT", given), ("COMPUTE", compute))
    return {
        Source("distributed/parts.cu", entry, (*macros, ("LABEL", label)))
        for entry, label in itertools.product(("part_columns", "whole_rows"), ("int", "long long"))
    }


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_parts(arch):
    check(set().union(*(sources(given, "float") for given in ("float16", "bfloat16", "float"))), arch)


def test_parts_in_fp64():
    assert all(spills((source, "sm_90"))[1] >= 0 for source in sources("double", "double"))

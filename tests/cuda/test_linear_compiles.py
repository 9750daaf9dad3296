"""The kernels of linear + cross-entropy compile without spilling.  Needs NVRTC, not a GPU."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.core")

from tests.cuda.test_compiles import check  # noqa: E402

from online_softmax._cuda.compile import Source  # noqa: E402


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_what_happens_between_products(arch):
    file, entry = "ops/linear_cross_entropy/shards.cu", "merge_shards"
    check(
        {
            Source(file, entry, (("COMPUTE", compute), ("LABEL", label)))
            for compute in ("float", "double")
            for label in ("int", "long long")
        },
        arch,
    )


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_zeros_for_ignored_rows(arch):
    file, entry = "ops/linear_cross_entropy/ignored.cu", "without_ignored"
    check({Source(file, entry, (("LABEL", label),)) for label in ("int", "long long")}, arch)

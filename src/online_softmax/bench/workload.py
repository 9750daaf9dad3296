"""What is measured: one operation on one shape, and the lists of them for CPU and CUDA."""

from __future__ import annotations

from typing import NamedTuple

# Least elements moved for each element of the input: reading a row once is 1, writing one is 1.
TRAFFIC = {
    "softmax": 2,
    "log_softmax": 2,
    "logsumexp": 1,
    "softmax backward": 3,
    "softmax forward + backward": 5,
    "log_softmax backward": 3,
    "logsumexp backward": 2,
    "cross_entropy": 2,
    "linear_cross_entropy": 0,  # bound by its matrix products
    "attention": 0,
}
POWERS = [1024 << i for i in range(9)]
LENGTHS = sorted([*POWERS, 32000, 50257, 128256, 151936, 256000])
LONG = [524288, 1048576]
VOCABULARIES = [32000, 50257, 128256, 151936, 256000, 262144]


class Workload(NamedTuple):
    """An operation on `rows` x `columns` elements.

    `variant` says how it is used: "", "existing output", "axis 0", "fresh memory" (ours takes none of
    a freed result), or for cross_entropy "inplace", "none" (no reduction) or "all options".  `way` says
    how it is timed: "cold" is one call on inputs that no cache holds, "call" one small call as Python
    makes it, "graph" the same in a CUDA graph.  `inner` is the hidden size of linear_cross_entropy, whose
    logits have the shape given, and the head size of attention, whose scores have it ("causal" or not).
    """

    operation: str
    rows: int
    columns: int
    dtype: str = "float32"
    variant: str = ""
    way: str = "cold"
    inner: int = 0

    @property
    def function(self) -> str:
        """The name of the public function at work."""
        return self.operation.split()[0]

    @property
    def traffic(self) -> int:
        """Least elements moved for each element of the input."""
        # A loss whose gradient is made in backward reads the logits twice.
        two_steps = self.operation == "cross_entropy" and (self.variant == "none" or self.dtype == "float16")
        return TRAFFIC[self.operation] + two_steps

    def __str__(self) -> str:
        shape = f"{self.rows} x {self.inner} x {self.columns}" if self.inner else f"{self.rows} x {self.columns}"
        parts = [self.operation, shape, self.dtype, self.variant]
        return " ".join(filter(None, parts)) + ("" if self.way == "cold" else f" ({self.way})")


def cpu_workloads(divisor: int = 1) -> list[Workload]:
    """The CPU's list, with every number of rows divided (small calls stay as they are)."""
    work = [Workload("logsumexp", 2048, 32000)]
    for operation in "softmax", "log_softmax":
        variants = "existing output", "", "fresh memory"
        work += [Workload(operation, 2048, 32000, variant=variant) for variant in variants]
    work.append(Workload("softmax", 4096, 4096, variant="axis 0"))
    for dtype in "float32", "bfloat16":
        shapes = (8192, 4194), (2048, 32000), (512, 128256)
        work += [Workload("cross_entropy", rows, columns, dtype) for rows, columns in shapes]
        work += [Workload("cross_entropy", 2048, 32000, dtype, variant) for variant in ("inplace", "fresh memory")]
    work.append(Workload("cross_entropy", 2048, 32000, variant="all options"))
    work += [Workload(f"{name} backward", 2048, 32000) for name in ("softmax", "log_softmax", "logsumexp")]
    elements = 2**25
    sweep = [128, 1024, 4096, 65536, 262144, 1048576]
    work += [Workload("softmax", elements // n, n, variant="existing output") for n in sweep]
    work.append(Workload("linear_cross_entropy", 4096, 32000, inner=512))
    work = [w._replace(rows=max(1, w.rows // divisor)) for w in work]
    work += [Workload("attention", 8 * n, n, variant=v, inner=64) for n in (2048 // divisor,) for v in ("", "causal")]
    return work + small_calls("call")


def cuda_workloads(elements: int = 2**28) -> list[Workload]:
    """The GPU's list for inputs of so many elements, the shapes that matter most first."""

    def rows_of(columns: int) -> int:
        return max(1, elements // columns)

    def loss(columns: int, dtype: str, variant: str = "") -> Workload:
        # At least 4096 rows and the whole number of elements, in a multiple of 128 rows.
        rows = max(4096 * elements // 2**28, -(-elements // columns // 128) * 128, 1)
        return Workload("cross_entropy", rows, columns, dtype, variant)

    work = [loss(n, dtype) for dtype in ("bfloat16", "float32") for n in VOCABULARIES]
    work += [Workload("softmax", rows, 262144, "bfloat16") for rows in (1, 8, 64)]
    work += small_calls("call") + small_calls("graph")
    for dtype in "bfloat16", "float32", "float16":
        short = [256, 512] if dtype == "bfloat16" else []
        work += [Workload("softmax", rows_of(n), n, dtype) for n in short + LENGTHS + LONG]
    for dtype in "bfloat16", "float32":
        work += [Workload("logsumexp", rows_of(n), n, dtype) for n in LENGTHS + LONG]
        work += [Workload("softmax backward", rows_of(n), n, dtype) for n in LENGTHS + LONG]
    work += [loss(n, dtype, "all options") for dtype in ("bfloat16", "float32") for n in VOCABULARIES]
    work += [loss(n, "bfloat16", "none") for n in VOCABULARIES] + [loss(n, "float16") for n in VOCABULARIES]
    work += [loss(n, "bfloat16", "inplace") for n in VOCABULARIES]
    for dtype in "bfloat16", "float32":
        work += [Workload("log_softmax", rows_of(n), n, dtype) for n in LENGTHS + LONG]
        work += [Workload("log_softmax backward", rows_of(n), n, dtype) for n in LENGTHS + LONG]
    work += [Workload("log_softmax", rows_of(n), n, "float16") for n in LENGTHS + LONG]
    return work


def small_calls(way: str) -> list[Workload]:
    """One call on 8 x 128 elements: nothing but what the call itself costs."""
    operations = "softmax", "softmax forward + backward", "cross_entropy"
    return [Workload(operation, 8, 128, way=way) for operation in operations]

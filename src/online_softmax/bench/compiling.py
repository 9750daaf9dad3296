"""Libraries that compile anew for each shape: on which shapes they take part, and for how long.

Some take seconds a shape, and all shapes of a run would keep a GPU waiting for ten minutes: `--everywhere` lets them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .workload import POWERS, VOCABULARIES, Workload

Lengths = dict[tuple[str, str], list[int]]

NOT_COMPILED = "not compiled for this shape in this run"
SECONDS = {"torch.compile": 90.0, "quack": 120.0}
ON_CUDA: dict[str, Lengths] = {
    "torch.compile": {
        ("softmax", "bfloat16"): [1024, 4096, 32768, 131072],
        ("softmax", "float32"): [4096, 32768],
        ("log_softmax", "bfloat16"): [1024, 4096, 32768],
        ("logsumexp", "bfloat16"): [1024, 4096, 32768],
        ("logsumexp", "float32"): [4096],
        ("softmax backward", "bfloat16"): [1024, 4096, 32768],
        ("softmax backward", "float32"): [4096],
        ("log_softmax backward", "bfloat16"): [4096],
        ("cross_entropy", "bfloat16"): [32000, 128256],
        ("cross_entropy", "float32"): [128256],
    },
    "quack": {
        ("softmax", "bfloat16"): [*POWERS, 50257],
        ("softmax", "float32"): [4096, 65536, 262144],
        ("softmax backward", "bfloat16"): [4096, 32768, 131072, 262144],
        ("softmax backward", "float32"): [32768, 262144],
        ("cross_entropy", "bfloat16"): VOCABULARIES,
        ("cross_entropy", "float32"): [128256],
    },
}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under torch.compile, which is loaded by the first call only: that takes seconds."""

    def compile_anew() -> Callable[..., Any]:
        torch._dynamo.reset()  # it compiles the same lines for a few shapes only, and is itself after that
        return torch.compile(function, dynamic=False)

    compile_once = functools.cache(compile_anew)
    return lambda *arguments: compile_once()(*arguments)


class Allowance:
    """What each compiling library may still take of one run."""

    def __init__(self, device: str, quick: bool, everywhere: bool = False) -> None:
        self.device, self.everywhere = device, everywhere
        self.left = dict.fromkeys(SECONDS, 0.0) if quick else dict(SECONDS)

    def refusal(self, library: str, workload: Workload) -> str | None:
        """Why a library sits this workload out; None when it takes part."""
        if library not in self.left or self.everywhere:
            return None
        lengths = ON_CUDA[library].get((workload.operation, workload.dtype), [])
        chosen = self.device != "cuda" or workload.columns in lengths
        return None if chosen and self.left[library] > 0 else NOT_COMPILED

    def spend(self, library: str, seconds: float) -> None:
        """Count the time of a library's first call on a shape."""
        if library in self.left:
            self.left[library] -= seconds

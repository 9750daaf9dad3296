"""Softmax, log-sum-exp and cross-entropy computed online, for NumPy arrays and PyTorch tensors.

Importing this imports NumPy and nothing heavier; `online_softmax.nn` and
`online_softmax.distributed` (which need torch) are imported on first use, and so are `warm_up` and the settings of
the CPU kernels.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .ops.attention import Merged, attention, merge_attention
from .ops.cross_entropy import Aux, check_targets, cross_entropy, cross_entropy_with_grad
from .ops.linear_cross_entropy import (
    LinearCrossEntropyGrads,
    linear_cross_entropy,
    linear_cross_entropy_with_grads,
)
from .ops.softmax import SignedLogSumExp, log_softmax, logsumexp, softmax
from .state import State, merge

if TYPE_CHECKING:
    from ._cpu import set_kept_memory, set_num_threads
    from ._cuda.warm import warm_up

__version__ = "0.1.0"
__all__ = [
    "Aux",
    "LinearCrossEntropyGrads",
    "Merged",
    "SignedLogSumExp",
    "State",
    "attention",
    "check_targets",
    "cross_entropy",
    "cross_entropy_with_grad",
    "linear_cross_entropy",
    "linear_cross_entropy_with_grads",
    "log_softmax",
    "logsumexp",
    "merge",
    "merge_attention",
    "set_kept_memory",
    "set_num_threads",
    "softmax",
    "warm_up",
]

_ON_FIRST_USE = ("distributed", "nn", "special")
_FROM_ON_FIRST_USE = {"set_kept_memory": "_cpu", "set_num_threads": "_cpu", "warm_up": "_cuda.warm"}


def __getattr__(name: str) -> Any:
    if name in _ON_FIRST_USE:
        return import_module(f".{name}", __name__)
    if name in _FROM_ON_FIRST_USE:
        return getattr(import_module(f".{_FROM_ON_FIRST_USE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_FIRST_USE, *__all__})

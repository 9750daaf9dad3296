"""Softmax, log-sum-exp and cross-entropy computed online, for NumPy arrays and PyTorch tensors."""

from .ops.cross_entropy import Aux, check_targets, cross_entropy, cross_entropy_with_grad
from .ops.softmax import SignedLogSumExp, log_softmax, logsumexp, softmax
from .state import State, merge

__version__ = "0.1.0"
__all__ = [
    "Aux",
    "SignedLogSumExp",
    "State",
    "check_targets",
    "cross_entropy",
    "cross_entropy_with_grad",
    "log_softmax",
    "logsumexp",
    "merge",
    "softmax",
]

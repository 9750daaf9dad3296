"""Softmax, log-sum-exp and cross-entropy computed online, for NumPy arrays and PyTorch tensors."""

from .ops.softmax import SignedLogSumExp, log_softmax, logsumexp, softmax
from .state import State, merge

__version__ = "0.1.0"
__all__ = ["SignedLogSumExp", "State", "log_softmax", "logsumexp", "merge", "softmax"]

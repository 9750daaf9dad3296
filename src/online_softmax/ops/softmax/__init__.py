"""softmax, log_softmax and logsumexp: read api.py first."""

from .api import SignedLogSumExp, log_softmax, logsumexp, softmax

__all__ = ["SignedLogSumExp", "log_softmax", "logsumexp", "softmax"]

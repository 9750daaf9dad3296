"""Linear layer and cross-entropy in one, without the batch's logits: read api.py first."""

from .api import linear_cross_entropy, linear_cross_entropy_with_grads
from .problem import LinearCrossEntropyGrads

__all__ = ["LinearCrossEntropyGrads", "linear_cross_entropy", "linear_cross_entropy_with_grads"]

"""Cross-entropy with its gradient: read api.py first."""

from .api import check_targets, cross_entropy, cross_entropy_with_grad
from .options import Aux

__all__ = ["Aux", "check_targets", "cross_entropy", "cross_entropy_with_grad"]

"""Attention computed tile by tile, and the merging of partial results: read api.py first."""

from .api import Merged, attention, merge_attention

__all__ = ["Merged", "attention", "merge_attention"]

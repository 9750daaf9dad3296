"""A short glossary and the two sources."""

from __future__ import annotations

from ..page import Charts

TITLE = "Glossary and sources"
INTRODUCTION = ""

_TERMS = (
    ("logits", "the numbers softmax turns into probabilities; one row of them a token, a query or an example."),
    ("maximum, m", "the largest logit seen; what is subtracted before exp, so that nothing overflows."),
    ("normaliser, s", "Σ e<sup>x − m</sup>, what the exponentials are divided by."),
    ("state", "the pair (m, s) of a row or of any part of one; (−∞, 0) for nothing."),
    ("merge", "the state of two parts together; associative and commutative."),
    ("rescale", "multiply s by e<sup>m − m′</sup> because a larger maximum m′ came."),
    ("log-sum-exp", "m + log s, in nats: the logarithm of the sum of exponentials."),
    ("block, tile", "the elements one update takes in; of keys and values in attention."),
    ("read, pass", "fetching every element of the row from memory once."),
    ("fused", "done in the same pass, so that what lies between is never stored."),
)

_SOURCES = """
<h3>Sources</h3>
<ul>
<li>Maxim Milakov and Natalia Gimelshein, “Online normalizer calculation for softmax”, 2018, arXiv:1805.02867.</li>
<li>Tri Dao, Daniel Y. Fu, Stefano Ermon, Atri Rudra and Christopher Ré, “FlashAttention: Fast and Memory-Efficient
Exact Attention with IO-Awareness”, 2022, section 3.1, arXiv:2205.14135.</li>
</ul>"""


def default() -> list[str | Charts]:
    """The pieces at the default settings."""
    terms = "".join(f"<dt>{term}</dt><dd>{meaning}</dd>" for term, meaning in _TERMS)
    return [f'<dl class="osw-glossary">{terms}</dl>', _SOURCES]

"""The sections in the order a learner needs them, one module each.

`view(...)` takes the controls' values and returns the pieces to show, `default()` those of the default settings;
TITLE and INTRODUCTION head the section.
"""

from . import any_order, attention, cost, glossary, loss, one_pass, questions

SECTIONS = (one_pass, any_order, attention, loss, cost, questions, glossary)

"""Each law catches the merge it is there for; the examples' exercise reports what it should."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from online_softmax import State
from online_softmax.laws import LAWS, broken_laws

EXERCISE = Path(__file__).parents[1] / "examples" / "write_your_merge.py"

SOLUTION = """
    m = max(m_a, m_b)
    f_a = 1.0 if m_a == m else math.exp(m_a - m)
    f_b = 1.0 if m_b == m else math.exp(m_b - m)
    return m, s_a * f_a + s_b * f_b
"""


def right(a, b):
    m = max(a[0], b[0])
    return m, sum(s * (1.0 if x == m else math.exp(x - m)) for x, s in (a, b))


def python(a, b):
    merged = State(np.float64(a[0]), np.float64(a[1])).merge(State(np.float64(b[0]), np.float64(b[1])))
    return float(merged.m), float(merged.s)


def compiled(a, b):
    return pytest.importorskip("online_softmax.ladder._rungs").merge(*a, *b)


def no_guard(a, b):
    m = max(a[0], b[0])
    return m, a[1] * math.exp(a[0] - m) + b[1] * math.exp(b[0] - m)


def no_rescale(a, b):
    return max(a[0], b[0]), a[1] + b[1]


def rescales_the_wrong_way(a, b):
    m = max(a[0], b[0])
    return m, sum(s * (1.0 if x == m else math.exp(min(m - x, 700.0))) for x, s in (a, b))


def forgets_the_left(a, b):
    return b if b[0] > a[0] else (a[0], a[1] + (b[1] * math.exp(b[0] - a[0]) if b[1] else 0.0))


def drops_nan(a, b):
    m, s = right(a, b)
    return m, 0.0 if math.isnan(s) else s


def subtracts_nothing(a, b):
    total = a[1] * math.exp(a[0]) + b[1] * math.exp(b[0])
    m = max(a[0], b[0])
    return m, total / math.exp(m)


def test_a_right_merge_breaks_no_law():
    assert broken_laws(right) == []


@pytest.mark.parametrize("merge", [python, compiled])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_librarys_merges_keep_the_laws(merge, law):
    law(merge, 1e-14)


@pytest.mark.parametrize(
    ("merge", "law"),
    [
        (no_guard, "two_empty_states"),
        (no_guard, "plus_infinity"),
        (no_rescale, "definition"),
        (no_rescale, "any_order_any_tree"),
        (rescales_the_wrong_way, "definition"),
        (forgets_the_left, "commutativity"),
        (forgets_the_left, "associativity"),
        (forgets_the_left, "any_order_any_tree"),
        (drops_nan, "nan"),
        (subtracts_nothing, "definition"),
        (lambda a, b: (b[0], b[1]), "identity"),
        (lambda a, b: (max(a[0], b[0], 0.0), right(a, b)[1]), "shift"),
        (lambda a, b: None, "identity"),
    ],
)
def test_a_wrong_merge_breaks_the_law_it_offends(merge, law):
    assert law in dict(broken_laws(merge))


def test_every_law_says_what_it_is_in_one_line():
    assert all(law.__doc__ and "\n" not in law.__doc__ for law in LAWS)


def run_exercise(path):
    return subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)


def test_the_exercise_as_shipped_says_that_every_law_is_broken():
    done = run_exercise(EXERCISE)
    assert done.returncode == 1
    assert f"{len(LAWS)} of {len(LAWS)} laws broken." in done.stdout
    assert "fill in merge in this file" in done.stdout


def test_the_exercise_filled_in_says_that_every_law_holds(tmp_path):
    text = EXERCISE.read_text()
    blank = '    raise NotImplementedError("fill in merge in this file")\n'
    assert text.count(blank) == 1
    solved = tmp_path / "solved.py"
    solved.write_text(text.replace(blank, SOLUTION.lstrip("\n")))
    done = run_exercise(solved)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every law holds" in done.stdout


def test_the_exercise_names_the_law_that_fails(tmp_path):
    solved = tmp_path / "almost.py"
    almost = SOLUTION.lstrip("\n").replace("1.0 if m_a == m else ", "")
    solved.write_text(
        EXERCISE.read_text().replace('    raise NotImplementedError("fill in merge in this file")\n', almost)
    )
    done = run_exercise(solved)
    assert done.returncode == 1
    assert "broken  two_empty_states" in done.stdout
    assert "holds   associativity" in done.stdout

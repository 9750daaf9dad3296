"""The laws of the merge, as checks of any function that merges two (m, s) pairs of floats.

The library's tests run them against the Python merge and the compiled one; `examples/write_your_merge.py` runs them
against the reader's. Each law takes the merge and a relative tolerance, returns None where the law holds, and
raises `BrokenLawError` saying what was merged, what came and what was wanted.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

Pair = tuple[float, float]
Merge = Callable[[Pair, Pair], Pair]
Law = Callable[[Merge, float], None]

EMPTY: Pair = (-math.inf, 0.0)
STATES: tuple[Pair, ...] = ((0.0, 1.0), (0.0, 3.0), (2.5, 1.25), (-7.0, 40.0), (1000.0, 2.0), (-1000.0, 5.0))
ROW = (0.5, -1.25, 3.0, 3.0, -math.inf, 100.0, 98.5, -200.0, 2.0, 101.0, 7.0, 99.0)


class BrokenLawError(AssertionError):
    """A merge broke a law; the text says where."""


def broken_laws(merge: Merge, tolerance: float = 1e-12) -> list[tuple[str, str]]:
    """The name of each law that `merge` breaks, with what went wrong; an empty list for a right merge."""
    found = []
    for law in LAWS:
        try:
            law(merge, tolerance)
        except BrokenLawError as error:
            found.append((law.__name__, str(error)))
        except Exception as error:  # the merge is the reader's: whatever it raises is a finding about it
            found.append((law.__name__, f"the merge raised {type(error).__name__}: {error}"))
    return found


def identity(merge: Merge, tolerance: float) -> None:
    """The empty state changes nothing, on either side."""
    for state in STATES:
        _expect(merge, state, EMPTY, wanted=state, tolerance=0.0)
        _expect(merge, EMPTY, state, wanted=state, tolerance=0.0)


def two_empty_states(merge: Merge, tolerance: float) -> None:
    """Two empty states make the empty state: exp(-inf - (-inf)) must never be computed."""
    _expect(merge, EMPTY, EMPTY, wanted=EMPTY, tolerance=0.0)


def definition(merge: Merge, tolerance: float) -> None:
    """Two one-element states merge to the state of both elements, however far apart or from zero they lie."""
    for x, y in ((0.0, 0.0), (1.0, 3.0), (3.0, 1.0), (1000.0, 1000.5), (-1000.0, -1001.0), (-800.0, 800.0)):
        _expect(merge, (x, 1.0), (y, 1.0), wanted=_state_of((x, y)), tolerance=tolerance)


def commutativity(merge: Merge, tolerance: float) -> None:
    """merge(a, b) = merge(b, a)."""
    for a in STATES:
        for b in STATES:
            _expect(merge, a, b, wanted=_pair(merge(b, a)), tolerance=tolerance)


def associativity(merge: Merge, tolerance: float) -> None:
    """merge(merge(a, b), c) = merge(a, merge(b, c))."""
    for a in STATES:
        for b in STATES:
            for c in STATES:
                left = _pair(merge(_pair(merge(a, b)), c))
                right = _pair(merge(a, _pair(merge(b, c))))
                _compare(f"a={a}, b={b}, c={c}: (a b) c against a (b c)", left, right, tolerance)


def any_order_any_tree(merge: Merge, tolerance: float) -> None:
    """A row cut anywhere, its parts merged in any order and any tree, gives the state of the row."""
    generator = random.Random(17)
    wanted = _state_of(ROW)
    for _ in range(50):
        cuts = sorted(generator.sample(range(1, len(ROW)), 5))
        bounds = zip([0, *cuts], [*cuts, len(ROW)], strict=True)
        parts = [_state_of(ROW[start:stop]) for start, stop in bounds]
        while len(parts) > 1:
            a = parts.pop(generator.randrange(len(parts)))
            b = parts.pop(generator.randrange(len(parts)))
            parts.append(_pair(merge(a, b)))
        _compare(f"the parts of a row cut at {cuts}", parts[0], wanted, tolerance)


def shift(merge: Merge, tolerance: float) -> None:
    """Adding c to every element adds c to m and leaves s alone."""
    for a in STATES[:4]:
        for b in STATES[:4]:
            m, s = _pair(merge(a, b))
            for c in (64.0, -4096.0):
                _expect(merge, (a[0] + c, a[1]), (b[0] + c, b[1]), wanted=(m + c, s), tolerance=tolerance)


def plus_infinity(merge: Merge, tolerance: float) -> None:
    """At m = +inf, s counts the elements that are +inf; whatever is finite vanishes."""
    for other in (*STATES, EMPTY):
        _expect(merge, (math.inf, 2.0), other, wanted=(math.inf, 2.0), tolerance=0.0)
        _expect(merge, other, (math.inf, 2.0), wanted=(math.inf, 2.0), tolerance=0.0)
    _expect(merge, (math.inf, 2.0), (math.inf, 1.0), wanted=(math.inf, 3.0), tolerance=0.0)


def nan(merge: Merge, tolerance: float) -> None:
    """A NaN in s is never dropped, not even by +inf or by the empty state."""
    for other in (*STATES, EMPTY, (math.inf, 1.0)):
        for spoiled in ((1.0, math.nan), (-math.inf, math.nan)):
            for a, b in ((spoiled, other), (other, spoiled)):
                _, s = _pair(merge(a, b))
                if not math.isnan(s):
                    raise BrokenLawError(f"merge({a}, {b}) has s = {s}; nan is wanted")


LAWS: tuple[Law, ...] = (
    identity,
    two_empty_states,
    definition,
    commutativity,
    associativity,
    any_order_any_tree,
    shift,
    plus_infinity,
    nan,
)


def _state_of(row: Sequence[float]) -> Pair:
    m = functools.reduce(max, row, -math.inf)
    return m, math.fsum(math.exp(x - m) for x in row if x > -math.inf)


def _expect(merge: Merge, a: Pair, b: Pair, *, wanted: Pair, tolerance: float) -> None:
    _compare(f"merge({a}, {b})", _pair(merge(a, b)), wanted, tolerance)


def _compare(what: str, got: Pair, wanted: Pair, tolerance: float) -> None:
    if got[0] != wanted[0] or not math.isclose(got[1], wanted[1], rel_tol=tolerance, abs_tol=0.0):
        raise BrokenLawError(f"{what} gives {got}; {wanted} is wanted")


def _pair(state: Any) -> Pair:
    try:
        m, s = state
        return float(m), float(s)
    except (TypeError, ValueError):
        raise BrokenLawError(f"a pair (m, s) of numbers is wanted, the merge returned {state!r}") from None

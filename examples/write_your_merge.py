"""Exercise: write the merge.

A part of a row is summarised by two numbers: m, the maximum of its elements x, and s, the sum of exp(x - m).
Fill in `merge` so that the summaries of two parts give the summary of both together. Then run

    python examples/write_your_merge.py

which says, law by law, whether your merge is right. Take care of the part with no elements yet: m is -inf, s is 0.
"""

import math  # noqa: F401  for the merge you write
import sys

from online_softmax.laws import LAWS, broken_laws


def merge(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    (m_a, s_a), (m_b, s_b) = a, b  # noqa: F841  for the lines you write
    # Which maximum do both parts have? What must each sum be multiplied by, to be kept against that one?
    # math.exp is all you need besides arithmetic. Replace the next line.
    raise NotImplementedError("fill in merge in this file")


def main() -> int:
    broken = dict(broken_laws(merge))
    for law in LAWS:
        verdict = "broken" if law.__name__ in broken else "holds"
        print(f"{verdict:<8}{law.__name__:<20}{law.__doc__}")
        if law.__name__ in broken:
            print(f"{'':8}{broken[law.__name__]}")
    print()
    print(f"{len(broken)} of {len(LAWS)} laws broken." if broken else "Every law holds: this is online softmax.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

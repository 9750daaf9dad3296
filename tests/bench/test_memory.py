"""Peak memory read from the operating system agrees with what a call is known to take."""

import sys
from pathlib import Path

import numpy as np
import pytest

from online_softmax.bench.memory import peak_extra

MEGABYTE = 10**6


def two_copies(rows):
    x = np.ones((rows, MEGABYTE // 8))

    def call():
        first = x + 1
        second = first + x
        del first
        return second

    return call


def unfinished(rows):
    raise ValueError("no such thing")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_two_copies_alive_at_once_are_two_copies(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    extra = peak_extra("test_memory:two_copies", rows=60)
    assert extra == pytest.approx(120 * MEGABYTE, rel=0.05)


def test_a_failure_in_the_other_process_is_told(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    with pytest.raises(RuntimeError, match="no such thing"):
        peak_extra("test_memory:unfinished", rows=1)

"""Attention of one query over tiles of keys and values: the state (m, s, v) after every tile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..state import State

COMPONENTS = 3


class Tile(NamedTuple):
    """The state after one tile of keys."""

    start: int
    stop: int
    m: float
    s: float
    v: tuple[float, ...]
    """The weighted sum of values so far, kept against m."""
    output: tuple[float, ...]
    """v / s: attention over the keys seen so far."""
    factor: float
    """What the sum and the vector before were multiplied by."""
    difference: float
    """The largest difference of any component from attention over all keys."""


class Attention(NamedTuple):
    """All tiles, and what they must come to."""

    tiles: tuple[Tile, ...]
    full: tuple[float, ...]
    """Attention over all keys at once: softmax of all scores, times the values."""


def attend(keys: int, tile: int, sharpness: float, seed: int) -> Attention:
    """One query against random keys and values, tile by tile and at once; `sharpness` multiplies the scores."""
    generator = np.random.default_rng(seed)
    scores = sharpness * generator.standard_normal(keys)
    values = generator.standard_normal((keys, COMPONENTS))
    weights = np.exp(scores - scores.max())
    full = weights @ values / weights.sum()
    state = State.empty((), scores, values=COMPONENTS)
    tiles = []
    for start in range(0, keys, tile):
        stop = min(start + tile, keys)
        before, state = state, state.update(scores[start:stop], -1, values[start:stop])
        output = np.asarray(state.output())
        tiles.append(
            Tile(
                start=start,
                stop=stop,
                m=float(state.m),
                s=float(state.s),
                v=tuple(np.asarray(state.v).tolist()),
                output=tuple(output.tolist()),
                factor=float(np.exp(before.m - state.m)),
                difference=float(np.abs(output - full).max()),
            )
        )
    return Attention(tuple(tiles), tuple(full.tolist()))

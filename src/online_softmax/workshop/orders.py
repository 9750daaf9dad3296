"""A row in parts, merged left to right, as a tree or in a random order; every step kept."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..state import State

ORDERS = ("left to right", "as a tree", "in a random order")


class Node(NamedTuple):
    """A part, or two nodes merged."""

    parts: tuple[int, ...]
    """The parts it covers, in the order they were merged."""
    m: float
    s: float
    children: tuple[int, ...]
    """Indices of the two nodes merged, none for a part."""
    level: int
    """0 for a part, otherwise one more than its deepest child."""


def merge_in_order(row: np.ndarray, parts: int, order: str, seed: int) -> list[Node]:
    """The nodes of the merge, parts first; the last covers the row."""
    states = [State.of(piece) for piece in np.array_split(row, parts)]
    nodes = [_node((i,), state, (), 0) for i, state in enumerate(states)]
    waiting = list(range(parts))
    generator = np.random.default_rng(seed)
    while len(waiting) > 1:
        waiting, pairs = _choose(waiting, order, generator)
        for a, b in pairs:
            states.append(states[a].merge(states[b]))
            level = 1 + max(nodes[a].level, nodes[b].level)
            nodes.append(_node(nodes[a].parts + nodes[b].parts, states[-1], (a, b), level))
            waiting.append(len(nodes) - 1)
        if order == "left to right":
            waiting.insert(0, waiting.pop())
        elif order == "as a tree":
            waiting.sort(key=lambda index: nodes[index].parts)
    return nodes


def _choose(waiting: list[int], order: str, generator: np.random.Generator) -> tuple[list[int], list[tuple[int, int]]]:
    """What still waits, and the pairs merged next: one pair, or for a tree a whole level of neighbours."""
    if order == "left to right":
        return waiting[2:], [(waiting[0], waiting[1])]
    if order == "as a tree":
        even = len(waiting) // 2 * 2
        return waiting[even:], list(zip(waiting[0:even:2], waiting[1:even:2], strict=True))
    picked = generator.permutation(len(waiting))
    a, b = waiting[picked[0]], waiting[picked[1]]
    return [index for index in waiting if index not in (a, b)], [(a, b)]


def _node(parts: tuple[int, ...], state: State, children: tuple[int, ...], level: int) -> Node:
    return Node(parts, float(state.m), float(state.s), children, level)

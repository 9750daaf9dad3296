"""What one chunk of the vocabulary has to know of targets, class weights and smoothing.

A chunk's own cross-entropy is asked for with options that make its terms those of the whole: of

    q'_c = (1 − ε) q_c + ε / V        over V classes

the kernel, which knows of `width` classes, computes share · ((1 − ε') q_c + ε' / width) with

    share = (1 − ε) + ε · width / V,        ε' = (ε · width / V) / share.

Rows whose target lies elsewhere are ignored here if there is no smoothing; else their target is a dummy class after the
chunk's own, of weight 0 and logit −inf.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..._arrays import Array, compute_dtype, device, is_integer, namespace
from ..cross_entropy.options import Options
from ..cross_entropy.terms import row_kinds
from .problem import Problem

_ELSEWHERE, _NO_CLASS = -1, -2


class Shard(NamedTuple):
    """Arguments of cross-entropy for the logits of some classes."""

    target: Array
    weight: Array | None
    options: Options
    width: int
    share: float
    mass: Array
    """(M,) Σ w_c q'_c over these classes, 0 for ignored rows."""


class Targets:
    """The targets of all rows, to be cut into shards."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.xp = xp = namespace(problem.input)
        self.compute = compute_dtype(xp, problem.input.dtype)
        self.classes = problem.linear_weight.shape[0]
        self.indices = is_integer(problem.target.dtype)
        where = device(problem.target)
        if self.indices:
            options = problem.options
            self.ignored, self.bad, self.index = row_kinds(xp, problem.target, self.classes, options.ignore_index)
        else:
            self.ignored = self.bad = xp.zeros(problem.target.shape[:1], dtype=xp.bool, device=where)
        self.ones = xp.ones(problem.target.shape[:1], dtype=self.compute, device=where)
        self.mass = self._mass(slice(0, self.classes))

    def shard(self, classes: slice) -> Shard:
        """The part of `classes`."""
        options, xp = self.problem.options, self.xp
        width = classes.stop - classes.start
        weight = None if self.problem.weight is None else self.problem.weight[classes]
        smoothing = options.label_smoothing
        if not self.indices:
            target = self.problem.target[:, classes]
        else:
            inside = (self.index >= classes.start) & (self.index < classes.stop)
            local, elsewhere = self.index - classes.start, _ELSEWHERE
            if smoothing:
                own = xp.ones((width,), dtype=self.compute, device=device(local)) if weight is None else weight
                weight = xp.concat([own, xp.zeros((1,), dtype=self.compute, device=device(local))])
                elsewhere, width = width, width + 1
            target = xp.where(inside, local, elsewhere)
            target = xp.where(self.ignored, _ELSEWHERE, xp.where(self.bad, _NO_CLASS, target))
        part = smoothing * (width / self.classes)
        share = (1.0 - smoothing) + part
        own_options = Options(_ELSEWHERE, "none", part / share, options.scale, options.softcap, 0.0)
        return Shard(target, weight, own_options, width, share, self._mass(classes))

    def _mass(self, classes: slice) -> Array:
        xp, weight, smoothing = self.xp, self.problem.weight, self.problem.options.label_smoothing
        own = None if weight is None else weight[classes]
        spread: Any = classes.stop - classes.start if own is None else xp.sum(own)
        if self.indices:
            inside = (self.index >= classes.start) & (self.index < classes.stop)
            hit = self.ones if weight is None or not self.classes else xp.take(weight, self.index)
            hit = xp.where(inside, hit, 0.0)
        else:
            q = xp.astype(self.problem.target[:, classes], self.compute)
            hit = xp.sum(q if own is None else q * own, axis=1)
        mass = hit if not smoothing else (1.0 - smoothing) * hit + (smoothing / self.classes) * spread
        return xp.where(self.ignored, 0.0, mass)

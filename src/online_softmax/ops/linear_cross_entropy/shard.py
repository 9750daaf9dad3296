"""What one chunk of the vocabulary has to know of targets, class weights and smoothing.

A chunk's own cross-entropy is asked for with options that make its terms those of the whole: of

    q'_c = (1 − ε) q_c + ε / V        over V classes

cross-entropy over n classes computes share · ((1 − ε') q_c + ε' / n) with

    share = (1 − ε) + ε · n / V,        ε' = (ε · n / V) / share.

Only one chunk has the class that an index names.  Without smoothing it is shown to that chunk, and the row looks
ignored to all others.  With smoothing it is shown to none, for every chunk then has mass of the row: the rows look like
probabilities that are all 0, and the class's term is a vector's work (`OwnClass`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..._arrays import Array, compute_dtype, device, is_integer, namespace
from ..cross_entropy.options import Options
from ..cross_entropy.terms import capped, capped_slope, row_kinds
from .problem import Problem

NOT_HERE = -1


class Shard(NamedTuple):
    """Arguments of cross-entropy for the logits of some classes."""

    target: Array
    weight: Array | None
    options: Options
    share: float

    def shared(self, by_row: Array) -> Array:
        """Times `share`, which without smoothing is 1."""
        return by_row if self.share == 1.0 else self.share * by_row


class Targets:
    """The targets of all rows, cut into shards for slices of classes of one length, but for the last.

    `mass` is Σ w_c q'_c of each row that is not ignored; of `plain` ones, indices without weights or smoothing, 1.
    `masses`, (shards, M) or (shards, 1), is that of what each shard's target shows.
    """

    def __init__(self, problem: Problem, chunks: Sequence[slice]) -> None:
        self.problem, self.options = problem, problem.options
        self.xp = xp = namespace(problem.input)
        self.compute = compute_dtype(xp, problem.input.dtype)
        self.classes = problem.linear_weight.shape[0]
        self.where = device(problem.target)
        self.own: OwnClass | None = None
        self.own_mass: Array | None = None
        self.mass: Any
        self.plain = is_integer(problem.target.dtype) and problem.weight is None and not self.options.label_smoothing
        if self.plain:
            self._find_plainly(problem.target)
        else:
            self._find(problem.target)
        self.each = self._cut(chunks)

    def _find(self, target: Array) -> None:
        xp = self.xp
        if is_integer(target.dtype):
            self.ignored, self.bad, index = row_kinds(xp, target, self.classes, self.options.ignore_index)
            self.index = xp.where(self.ignored | self.bad, NOT_HERE, index)
            own = OwnClass(self, index)
            self.own_mass = own.mass
            self.own = own if self.options.label_smoothing else None
        else:
            self.ignored = self.bad = xp.zeros(target.shape[:1], dtype=xp.bool, device=self.where)
        mass = self._mass(slice(0, self.classes))
        mass = mass if self.own_mass is None else mass + self.own_mass
        self.mass = xp.where(self.ignored, 0.0, mass)

    def _find_plainly(self, target: Array) -> None:
        """The same with fewer operations."""
        self.ignored = target == self.options.ignore_index
        known = (target >= 0) & (target < self.classes)
        self.bad = ~(known | self.ignored)
        if 0 <= self.options.ignore_index < self.classes:
            known = known & ~self.ignored
        self.index = self.xp.where(known, target, NOT_HERE)
        self.mass = 1.0

    def _cut(self, chunks: Sequence[slice]) -> list[Shard]:
        xp = self.xp
        if not self.plain and (self.own_mass is None or self.own is not None):
            masses = xp.stack([self._mass(classes) for classes in chunks])
            self.masses = masses[:, None] if masses.ndim == 1 else masses
            return [self._shard(classes, self._spread_target(classes)) for classes in chunks]
        # Of all chunks at once: fewer operations.
        step = chunks[0].stop
        local = self.index - step * xp.arange(len(chunks), device=self.where)[:, None]
        inside = (local >= 0) & (local < step)
        local = xp.where(inside, local, NOT_HERE)
        self.masses = xp.astype(inside, self.compute)
        if not self.plain:
            self.masses = xp.where(inside, self.own_mass, 0.0)
        return [self._shard(classes, local[i]) for i, classes in enumerate(chunks)]

    def _shard(self, classes: slice, target: Array) -> Shard:
        width, smoothing = classes.stop - classes.start, self.options.label_smoothing
        weight = self.problem.weight
        part = smoothing * (width / self.classes)
        share = (1.0 - smoothing) + part
        options = Options(NOT_HERE, "none", part / share, self.options.scale, self.options.softcap, 0.0)
        return Shard(target, None if weight is None else weight[classes], options, share)

    def _spread_target(self, classes: slice) -> Array:
        """Probabilities: the given ones, or zeros that smoothing adds to."""
        if self.own_mass is None:
            return self.problem.target[:, classes]
        width = classes.stop - classes.start
        zeros = self.xp.zeros((1, width), dtype=self.compute, device=self.where)
        return self.xp.broadcast_to(zeros, (self.ignored.shape[0], width))

    def _mass(self, classes: slice) -> Array:
        xp, smoothing = self.xp, self.options.label_smoothing
        weight = None if self.problem.weight is None else self.problem.weight[classes]
        width = xp.full((), float(classes.stop - classes.start), dtype=self.compute, device=self.where)
        mass = (smoothing / self.classes) * (width if weight is None else xp.sum(weight))
        if self.own_mass is not None:
            return mass
        q = xp.astype(self.problem.target[:, classes], self.compute)
        return mass + (1.0 - smoothing) * xp.sum(q if weight is None else q * weight, axis=1)


class OwnClass:
    """The one class of each row that its index names."""

    def __init__(self, targets: Targets, index: Array) -> None:
        xp, weight = targets.xp, targets.problem.weight
        self.targets, self.index = targets, index
        self.rows = xp.arange(index.shape[0], device=targets.where)
        ones = xp.ones(index.shape, dtype=targets.compute, device=targets.where)
        self.weight = ones if weight is None else xp.take(weight, index)
        self.mass = (1.0 - targets.options.label_smoothing) * self.weight
        self.logit = xp.zeros_like(ones)

    def find(self, logits: Array, classes: slice) -> None:
        """Take note of the logits of rows whose class is among these."""
        inside, local = self._place(classes)
        xp = self.targets.xp
        self.logit = xp.where(inside, xp.astype(logits[self.rows, local], self.targets.compute), self.logit)

    def loss(self, lse: Array, lse_low: Array) -> Array:
        """This class's term, once every logit is found."""
        xp = self.targets.xp
        x = capped(xp, self.logit, self.targets.options)
        return xp.where(self.mass == 0, 0.0, self.mass * ((lse - x) + lse_low))

    def write(self, gradient: Array, classes: slice, lse: Array, lse_low: Array, pull: Array, share: Array) -> None:
        """This class's gradient, rounded once, from the logits noted by `find`."""
        xp, options = self.targets.xp, self.targets.options
        inside, local = self._place(classes)
        x = capped(xp, self.logit, options)
        q = (1.0 - options.label_smoothing) + options.label_smoothing / self.targets.classes
        p = xp.exp((x - lse) - lse_low)
        own = (p * pull - share * self.weight * q) * capped_slope(xp, x, options)
        own = xp.where(self.targets.bad | ~xp.isfinite(lse), xp.nan, own)
        there = gradient[self.rows, local]
        own = xp.where(inside & ~self.targets.ignored, xp.astype(own, gradient.dtype), there)
        gradient[self.rows, local] = own

    def _place(self, classes: slice) -> tuple[Array, Array]:
        inside = (self.index >= classes.start) & (self.index < classes.stop)
        local: Any = self.targets.xp.where(inside, self.index - classes.start, 0)
        return inside, local

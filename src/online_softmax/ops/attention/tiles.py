"""Attention as a loop over tiles of scores: matrix products of the array's own library around a state update.

Scores exist for one tile at a time: some queries of some heads against a block of keys.  The update between the two
products is `steps.update` of the implementation that runs the loop; a tile that no query may see is never computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from array_api_compat import is_writeable_array

from ..._arrays import Array, compute_dtype, device, is_tensor, namespace
from .options import Forward, Options

_KEYS = 512
_QUERIES = 256
_ROWS = 512


class Tile(NamedTuple):
    """Slices of batch, key heads and queries, and the keys that any of these queries may see."""

    batch: int
    heads: slice
    queries: slice
    keys: list[slice]


def tiles(q: Array, k: Array, options: Options) -> Iterator[Tile]:
    """The work of one call, in the order it is done."""
    batch, heads, group, queries, _ = q.shape
    if group == 0:
        return
    length = k.shape[-2]
    width = options.block or _KEYS
    rows = max(1, min(queries, _QUERIES // group or 1))
    together = max(1, min(heads, _ROWS // (rows * group)))
    for b in range(batch):
        for h in range(0, heads, together):
            for i in range(0, queries, rows):
                stop = min(i + rows, queries)
                seen = min(length, max(0, stop + length - queries)) if options.causal else length
                keys = [slice(j, min(j + width, seen)) for j in range(0, seen, width)]
                yield Tile(b, slice(h, min(h + together, heads)), slice(i, stop), keys)


def first_visible(tile: Tile, keys: slice, queries: int, length: int, options: Options) -> int | None:
    """How many keys of this block the tile's first query sees; None when all queries see all."""
    if not options.causal:
        return None
    first = tile.queries.start + (length - queries) + 1 - keys.start
    return None if first >= keys.stop - keys.start else first


def forward(steps: ModuleType, q: Array, k: Array, v: Array, mask: Array | None, options: Options) -> Forward:
    """softmax(scale · q kᵀ + mask) v and its log-sum-exp; shapes as in options.Forward, k and v (B, K, length, ·)."""
    xp = namespace(q)
    compute = compute_dtype(xp, q.dtype)
    where = {"dtype": compute, "device": device(q)}
    finite = all_finite(xp, v)
    shape, size = tuple(q.shape[:-1]), v.shape[-1]
    whole = [new(xp, (*shape, size), q.dtype, q), new(xp, shape, compute, q), new(xp, shape, compute, q)]

    def compute_tile(tile: Tile) -> tuple[Array, ...]:
        rows, scaled = scaled_queries(xp, q, tile, options, compute)
        m, s = xp.full(rows, -math.inf, **where), xp.zeros(rows, **where)
        acc = xp.zeros((*rows, size), **where)
        scratch = Scratch(xp)
        for keys in tile.keys:
            scores = tile_scores(xp, scaled, k, mask, tile, keys, compute, scratch)
            first = first_visible(tile, keys, shape[-1], k.shape[-2], options)
            weights, m, s, acc = steps.update(scores, m, s, acc, first)
            values = xp.astype(v[tile.batch, tile.heads, keys, :], compute, copy=False)
            acc = add_weighted(xp, acc, weights, values, finite)
        # A query that saw nothing has s = 0: its output is 0 and its log-sum-exp m itself.
        some = xp.where(s == 0, 1.0, s)
        log_s = xp.log(some)
        lse = m + log_s
        low = xp.where(xp.isfinite(lse), (m - lse) + log_s, 0.0)
        parts = xp.astype(acc / some[..., None], q.dtype, copy=False), lse, low
        for array, part in zip(whole, parts, strict=True):
            if array is not None:
                array[(tile.batch, tile.heads, slice(None), tile.queries, ...)] = part
        return () if whole[0] is not None else parts

    jobs = list(tiles(q, k, options))
    parts = steps.run(compute_tile, jobs, q, math.prod(shape) * k.shape[-2])
    if whole[0] is not None:
        return Forward(*whole)
    return Forward(*(_join(xp, jobs, each) for each in zip(*parts, strict=True)))


def backward(
    steps: ModuleType,
    grad_out: Array,
    grad_lse: Array | None,
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    result: Forward,
    options: Options,
    grad_mask: Array | None = None,
) -> tuple[Array, Array, Array]:
    """(dq, dk, dv); adds the gradient of an additive mask to grad_mask, an array of zeros of the mask's full shape."""
    xp = namespace(q)
    compute = compute_dtype(xp, q.dtype)
    clean = (lambda a: a) if all_finite(xp, q) and all_finite(xp, k) else (lambda a: xp.where(xp.isfinite(a), a, 0.0))
    dq = xp.zeros_like(q)
    dk, dv = xp.zeros(k.shape, dtype=compute, device=device(k)), xp.zeros(v.shape, dtype=compute, device=device(v))

    def add_tile(tile: Tile, scratch: Scratch) -> None:
        rows, scaled = scaled_queries(xp, q, tile, options, compute)
        flat = (rows[0], rows[1] * rows[2])
        here = (tile.batch, tile.heads, slice(None), tile.queries)
        grad = xp.astype(grad_out[here], compute)
        delta = xp.sum(grad * xp.astype(result.out[here], compute), axis=-1)
        if grad_lse is not None:
            delta = delta - grad_lse[here]
        lse, low = result.lse[here], result.lse_low[here]
        grad = xp.reshape(grad, (*flat, grad.shape[-1]))
        dq_tile = xp.zeros(scaled.shape, dtype=compute, device=device(q))
        for keys in tile.keys:
            part = (tile.batch, tile.heads, keys, slice(None))
            values, k_part = xp.astype(v[part], compute, copy=False), xp.astype(k[part], compute, copy=False)
            scores = tile_scores(xp, scaled, k, mask, tile, keys, compute, scratch)
            grad_weights = xp.reshape(scratch.product("grad", grad, xp.matrix_transpose(values)), scores.shape)
            first = first_visible(tile, keys, q.shape[-2], k.shape[-2], options)
            p, ds = steps.gradient(scores, grad_weights, lse, low, delta, first)
            if grad_mask is not None:
                grad_mask[(*here, keys)] += ds
            p, ds = (xp.reshape(a, (*flat, a.shape[-1])) for a in (p, ds))
            _add_product(xp, dv[part], xp.matrix_transpose(p), grad)
            _add_product(xp, dk[part], xp.matrix_transpose(ds), clean(scaled))
            _add_product(xp, dq_tile, ds, clean(k_part))
        dq[here] = xp.reshape(xp.astype(dq_tile * options.scale, q.dtype), (*rows, q.shape[-1]))

    def compute_heads(jobs: list[Tile]) -> None:
        scratch = Scratch(xp)
        for tile in jobs:
            add_tile(tile, scratch)

    # Tiles of the same heads add to the same gradients: one after the other, in order.
    by_heads: dict[tuple[int, int], list[Tile]] = {}
    for tile in tiles(q, k, options):
        by_heads.setdefault((tile.batch, tile.heads.start), []).append(tile)
    steps.run(compute_heads, list(by_heads.values()), q, math.prod(q.shape[:-1]) * k.shape[-2])
    return dq, xp.astype(dk, k.dtype, copy=False), xp.astype(dv, v.dtype, copy=False)


class Scratch:
    """Memory for products that every tile makes anew: allocating it each time costs page faults."""

    def __init__(self, xp: Any) -> None:
        self._xp, self._kept = xp, {}  # type: Any, dict[str, Array]

    def product(self, name: str, a: Array, b: Array) -> Array:
        """The batched matrix product a · b; overwritten by the next one of the same name."""
        if not is_tensor(a):
            return self._xp.matmul(a, b)
        shape = (*a.shape[:-1], b.shape[-1])
        kept = self._kept.get(name)
        if kept is None or kept.shape != shape:
            kept = self._kept[name] = a.new_empty(shape)
        return self._xp.bmm(a, b, out=kept)


def scaled_queries(xp: Any, q: Array, tile: Tile, options: Options, compute: Any) -> tuple[tuple[int, ...], Array]:
    """The shape (heads, group, queries) of a tile's rows, and its queries times scale as (heads, rows, D)."""
    part = q[tile.batch, tile.heads, :, tile.queries, :]
    rows = tuple(part.shape[:-1])
    scaled = xp.astype(part, compute) * options.scale
    return rows, xp.reshape(scaled, (rows[0], rows[1] * rows[2], part.shape[-1]))


def tile_scores(
    xp: Any, scaled: Array, k: Array, mask: Array | None, tile: Tile, keys: slice, compute: Any, scratch: Scratch
) -> Array:
    """The scores of a tile, −inf where the mask hides a key."""
    part = xp.astype(k[tile.batch, tile.heads, keys, :], compute, copy=False)
    scores = scratch.product("scores", scaled, xp.matrix_transpose(part))
    count = tile.queries.stop - tile.queries.start
    scores = xp.reshape(scores, (scores.shape[0], scores.shape[1] // count, count, scores.shape[2]))
    if mask is None:
        return scores
    hidden = mask[tile.batch, tile.heads, :, tile.queries, keys]
    if hidden.dtype == xp.bool:
        return xp.where(hidden, scores, -xp.inf)
    # Selected, not added: −inf hides a key even where its score is NaN.
    return xp.where(hidden == -xp.inf, -xp.inf, scores + xp.astype(hidden, compute))


def add_weighted(xp: Any, acc: Array, weights: Array, values: Array, finite: bool) -> Array:
    """acc + weights · values, where a weight of exactly 0 adds 0 whatever the value."""
    heads, group, queries, size = acc.shape
    flat = xp.reshape(weights, (heads, group * queries, weights.shape[-1]))
    rows = xp.reshape(acc, (heads, group * queries, size))
    if finite:
        return xp.reshape(_add_product(xp, rows, flat, values), acc.shape)
    odd = xp.any(~xp.isfinite(values), axis=-1)
    rows = _add_product(xp, rows, flat, xp.where(odd[..., None], 0.0, values))
    for key in range(values.shape[-2]):
        if xp.any(odd[:, key]):
            weight = flat[..., key][..., None]
            extra = xp.where(weight == 0, 0.0, weight * values[:, key, :][:, None, :])
            rows = rows + xp.where(odd[:, key][:, None, None], extra, 0.0)
    return xp.reshape(rows, acc.shape)


def _add_product(xp: Any, total: Array, a: Array, b: Array) -> Array:
    """total + a · b, in total's memory where arrays can be written to."""
    if is_tensor(total):
        return total.baddbmm_(a, b)
    if not is_writeable_array(total):
        return total + xp.matmul(a, b)
    total += xp.matmul(a, b)
    return total


def all_finite(xp: Any, x: Array) -> bool:
    """Whether x holds no NaN and no infinity."""
    # A finite sum takes a tenth of the time that looking at each element does.
    if is_tensor(x) and bool(x.sum(dtype=compute_dtype(xp, x.dtype)).isfinite()):
        return True
    return bool(xp.all(xp.isfinite(x)))


def new(xp: Any, shape: tuple[int, ...], dtype: Any, like: Array) -> Array | None:
    """An uninitialised array, or None in a library whose arrays cannot be written to."""
    out = xp.empty(shape, dtype=dtype, device=device(like))
    return out if is_writeable_array(out) else None


def _join(xp: Any, jobs: list[Tile], parts: tuple[Array, ...]) -> Array:
    """The parts that tiles gave, put together."""
    batches: dict[int, dict[int, list[Array]]] = {}
    for tile, part in zip(jobs, parts, strict=True):
        batches.setdefault(tile.batch, {}).setdefault(tile.heads.start, []).append(part)
    return xp.stack(
        [xp.concat([xp.concat(p, axis=2) for p in heads.values()], axis=0) for heads in batches.values()], axis=0
    )

"""attention and merge_attention as users call them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..._arguments import answers_synonyms, flag
from ..._arrays import Array, is_tensor
from ..._dispatch import implementation
from .arguments import prepare, prepare_partials, separate


class Merged(NamedTuple):
    """What merge_attention returns."""

    out: Array
    """(…, head size), the attention over all keys together, in the dtype of the partial results."""
    lse: Array
    """(…), the log-sum-exp of all scores together, nats; float32, or float64 for float64 input."""


def merge_attention(outs: Array | Sequence[Array], lses: Array | Sequence[Array], *, impl: str = "auto") -> Merged:
    """The attention over all keys from partial results over some of the keys each.

    A partial result is the state (m, s, v) of attention in its finished form: out = v / s and lse = m + log s. Any
    number of them, in any order, merge to what one pass over all keys gives.

    Parameters
    ----------
    outs : list of arrays (…, head size), or one array with the partial results along its first axis
        Outputs of the same queries over different keys; fp16, bf16, fp32 or fp64, any leading shape and head size.
    lses : list of arrays (…), or one array with the partial results along its first axis
        The natural log-sum-exp of each query's scores in that partial result. −inf: it saw no key, and its out takes
        no part even if it holds NaN.
    impl : {"auto", "reference", "cpu", "cuda"}
        Which implementation runs; a named one runs or raises.

    Returns
    -------
    Merged(out, lse)
        Differentiable in outs and lses. Where every partial result is empty: zeros and −inf. Where an lse is NaN: NaN.
        Where lses are +inf: +inf, and the average of those partial results.

    Raises
    ------
    TypeError, ValueError
        If there is nothing to merge, or shapes, dtypes, libraries or devices differ.

    Examples
    --------
    >>> import numpy as np, online_softmax as osm
    >>> outs, lses = [np.array([[1.0]]), np.array([[3.0]])], [np.array([0.0]), np.array([np.log(3.0)])]
    >>> osm.merge_attention(outs, lses).out
    array([[2.5]])

    Source: Dao et al. 2022, FlashAttention, section 3.1, for two parts; here the N-way merge of states.
    """
    ready = prepare_partials(outs, lses)
    if is_tensor(ready.outs[0] if isinstance(ready.outs, list) else ready.outs):
        from . import torch_op

        return Merged(*torch_op.merge_attention(ready, impl))
    outs, lses = separate(ready.outs), separate(ready.lses)
    return Merged(*implementation("attention", outs[0], impl).merge(outs, lses))


@answers_synonyms
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    block: int | None = None,
    impl: str = "auto",
) -> Any:
    """softmax(scale · q kᵀ + mask) v, computed tile by tile: the scores are never stored.

    Parameters
    ----------
    q : array or tensor (…, heads, queries, head size)
        fp16, bf16, fp32 or fp64; 16-bit input is computed in fp32 on the CPU. NumPy, torch or any array-API library.
    k, v : array or tensor (…, key heads, keys, head size)
        Key heads divide heads: query head h reads key head h // (heads // key heads). The head size of v may differ.
        Also (queries, head size) and (keys, head size), for one head.
    mask : bool or floating, broadcasts to (…, heads, queries, keys)
        True: the key takes part; or numbers that are added to the scores, −inf hiding a key.
    causal : bool
        Query i of L sees key j of N when j ≤ i + N − L: the last query sees every key.
    scale : float
        Of the scores; 1 / √(head size) unless given.
    return_lse : bool
        Return (out, lse): what `merge_attention` takes.
    block : int
        Keys a tile; chosen unless given. Changes memory and time, not the result beyond rounding.
    impl : {"auto", "reference", "cpu", "cuda"}
        Which implementation runs; a named one runs or raises.

    Returns
    -------
    out : (…, heads, queries, head size of v), in q's dtype
        A query that sees no key gives 0.
    lse : (…, heads, queries), only with return_lse
        Log-sum-exp of each query's scores, nats, fp32 or fp64; −inf for a query that sees no key. Differentiable.

    Raises
    ------
    TypeError, ValueError
        If a shape, dtype, device or option does not fit.

    Examples
    --------
    >>> import numpy as np, online_softmax as osm
    >>> q = k = np.array([[0.0], [0.0]])
    >>> osm.attention(q, k, np.array([[1.0], [3.0]]), causal=True)
    array([[1.],
           [2.]])

    Source: Dao et al. 2022, FlashAttention (arXiv:2205.14135); Milakov & Gimelshein 2018 (arXiv:1805.02867).
    """
    return_lse = flag("return_lse", return_lse)
    ready = prepare(q, k, v, mask, causal, scale, block)
    if is_tensor(ready.q):
        from . import torch_op

        out, lse = torch_op.attention(ready, impl)
    else:
        module = implementation("attention", ready.q, impl)
        out, lse, _ = module.attention(ready.q, ready.k, ready.v, ready.mask, ready.options)
    return (ready.restore(out), ready.restore(lse)) if return_lse else ready.restore(out)

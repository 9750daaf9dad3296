"""Compiling ahead, for servers: the first request should not wait for NVRTC."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def warm_up(
    lengths: Iterable[int],
    *,
    dtypes: Iterable[torch.dtype] = (torch.bfloat16, torch.float32),
    operations: Iterable[str] = ("softmax", "log_softmax", "logsumexp", "cross_entropy"),
    device: torch.device | str | int = "cuda",
) -> None:
    """Compile and load what these operations need, forward and backward, for rows of these lengths.

    A kernel depends on a row's length and element type, not on how many rows there are, so one row stands for all.
    """
    from ..ops.cross_entropy import cuda as cross_entropy
    from ..ops.cross_entropy.options import Options
    from ..ops.softmax import cuda as softmax

    wanted = set(operations)
    unknown = wanted - {"softmax", "log_softmax", "logsumexp", "cross_entropy"}
    if unknown:
        raise ValueError(f"operations: {sorted(unknown)} are not among softmax, log_softmax, logsumexp, cross_entropy")
    dtypes = tuple(dtypes)
    for length in lengths:
        for dtype in dtypes:
            x = torch.zeros(1, length, dtype=dtype, device=device)
            if "softmax" in wanted:
                softmax.softmax_backward(x, softmax.softmax(x, 1, dtype), 1, dtype)
            if "log_softmax" in wanted:
                softmax.log_softmax_backward(x, softmax.log_softmax(x, 1, dtype), 1, dtype)
            if "logsumexp" in wanted:
                lse = softmax.logsumexp(x, 1, dtype)
                softmax.logsumexp_backward(lse, x, lse, 1)
            if "cross_entropy" in wanted:
                target = torch.zeros(1, dtype=torch.int64, device=x.device)
                for reduction, gradient in (("mean", True), ("none", None)):
                    result = cross_entropy.forward(
                        x, target, None, None, Options(reduction=reduction), gradient=gradient
                    )
                cross_entropy.backward(
                    x,
                    target,
                    None,
                    result.lse,
                    result.lse_low,
                    result.divisors,
                    Options(reduction="none"),
                    result.loss,
                    None,
                )
                cross_entropy.rescale(x, result.loss[0])

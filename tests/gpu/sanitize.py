"""Reaches every kernel once, small, uneven and unaligned: to be run under compute-sanitizer.

compute-sanitizer --tool memcheck|racecheck|synccheck python tests/gpu/sanitize.py
"""

from __future__ import annotations

import torch

from online_softmax import merge_attention
from online_softmax.ops.cross_entropy import cuda as cross_entropy
from online_softmax.ops.cross_entropy.options import Options
from online_softmax.ops.softmax import cuda as softmax

# A group of lanes, several rows a block, a block, clusters of 2 and 16, shared memory (also with words beyond it in
# backward, and with blocks that stay), split.
LENGTHS = (13, 501, 2500, 9001, 20001, 200003, 300001, 500001, 900001, 1600001)


def rows(length: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(3, length + 3, device="cuda").to(dtype)[:, 1 : length + 1]


def main() -> None:
    for length in LENGTHS:
        x = rows(length)
        for forward, backward in (
            (softmax.softmax, softmax.softmax_backward),
            (softmax.log_softmax, softmax.log_softmax_backward),
        ):
            y = forward(x, 1, x.dtype)
            backward(x, y, 1, x.dtype)
        lse = softmax.logsumexp(x, 1, torch.float32)
        softmax.logsumexp_backward(lse, x, lse, 1)
        target = torch.tensor([0, length - 1, -100], device="cuda")
        weight = torch.rand(length, device="cuda")
        result = cross_entropy.forward(x, target, None, None, Options(), gradient=True)
        cross_entropy.rescale(result.gradient, result.loss)
        given = (result.lse, result.lse_low, result.divisors)
        cross_entropy.backward(x, target, None, *given, Options(), result.loss, result.lse)
        if length in (501, 9001, 1600001):
            every = Options(label_smoothing=0.1, scale=0.5, softcap=20.0, z_loss=1e-3)
            cross_entropy.forward(x, target, weight, None, every, aux=True, gradient=True)
            cross_entropy.backward(x, target, weight, *given, every, result.loss, result.lse)
            probabilities = torch.softmax(x.float(), 1)
            cross_entropy.forward(x, probabilities, None, None, Options(), gradient=True)
            cross_entropy.backward(x, probabilities, weight, *given, every, result.loss, result.lse)
    line = rows(999, torch.float32)
    line[1] = torch.inf
    for axis in (0, 1):
        y = softmax.softmax(line.t(), axis, line.dtype)
        softmax.softmax_backward(line.t().contiguous(), y, axis, line.dtype)
        lse = softmax.logsumexp(line.t(), axis, line.dtype)
        softmax.logsumexp_backward(lse, line.t(), lse, axis)
    for length in (2, 300001, 1600001):  # small terms are summed once more: in registers, in shared memory, over blocks
        dominated = torch.full((3, length), -60.0, device="cuda")
        dominated[:, 0] = 0
        softmax.logsumexp(dominated, 1, torch.float32)
        softmax.logsumexp(dominated[:, :999].t(), 0, torch.float32)
        softmax.log_softmax(dominated, 1, torch.float32)
    many = torch.zeros(40000, device="cuda", dtype=torch.int64)
    cross_entropy.forward(torch.randn(40000, 4, device="cuda"), many, None, None, Options())
    for count, size in ((3, 40), (8, 128), (11, 5), (40, 1030)):  # listed and stacked, counted ahead and at run time
        outs = torch.randn(count, 7, size, device="cuda", requires_grad=True)
        lses = torch.randn(count, 7, device="cuda", requires_grad=True)
        for given in ((outs, lses), (list(outs), list(lses))):
            out, lse = merge_attention(*given)
            (out.sum() + lse.sum()).backward()
    torch.cuda.synchronize()
    print("every kernel ran")


if __name__ == "__main__":
    main()

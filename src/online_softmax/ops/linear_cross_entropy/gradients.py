"""The three gradients, gathered from chunks of rows whose logits have become their gradient."""

from __future__ import annotations

from ..._arrays import Array, compute_dtype, namespace
from . import products
from .problem import LinearCrossEntropyGrads, Problem, Wanted


class RowGradients:
    """Takes chunks of rows in turn; the weight's gradient is summed in fp32 and rounded once."""

    def __init__(self, problem: Problem, wanted: Wanted, chunks: int) -> None:
        x, weight = problem.input, problem.linear_weight
        self.problem, self.wanted, self.one = problem, wanted, chunks == 1
        self.compute = compute_dtype(namespace(x), x.dtype)
        of_input, of_weight, _ = problem.dtypes
        self.input = products.empty(x, x.shape, of_input) if wanted.input else None
        self.linear_weight = None
        if wanted.linear_weight:
            wide = self.compute if products.narrow(of_weight) and not self.one else of_weight
            self.linear_weight = products.empty(x, weight.shape, wide)
        self.linear_bias: Array | None = None

    def take(self, rows: slice, gradient: Array, x: Array) -> None:
        """Products of a chunk: its gradient (n, V), and its input (n, H) without ignored rows."""
        if self.input is not None:
            products.into(gradient, self.problem.linear_weight, self.input[rows])
        if self.linear_weight is not None:
            if self.one:
                products.into(gradient.T, x, self.linear_weight)
            else:
                products.add(gradient.T, x, self.linear_weight, fresh=rows.start == 0)
        if self.wanted.linear_bias:
            sums = products.column_sums(gradient, self.compute)
            self.linear_bias = sums if self.linear_bias is None else self.linear_bias + sums

    def finish(self) -> LinearCrossEntropyGrads:
        """The gradients in their own dtypes."""
        return rounded(self.problem, self.input, self.linear_weight, self.linear_bias)


def rounded(problem: Problem, *gradients: Array | None) -> LinearCrossEntropyGrads:
    """Gradients of input, weight and bias in the dtypes asked for."""
    xp = namespace(problem.input)
    return LinearCrossEntropyGrads(
        *(
            gradient if gradient is None else xp.astype(gradient, dtype, copy=False)
            for gradient, dtype in zip(gradients, problem.dtypes, strict=True)
        )
    )

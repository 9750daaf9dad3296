"""The exponentials of a state to autograd.  Imported only once a tensor has arrived."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._arrays import namespace


class _Exponential(torch.autograd.Function):
    """exp(x − m), whose slope is itself: 1 at an infinite maximum, 0 at −inf, where the slope of x − m would be NaN."""

    @staticmethod
    def forward(ctx: Any, rule: Callable[..., Tensor], x: Tensor, m: Tensor) -> Tensor:
        e = rule(namespace(x), x, m)
        ctx.save_for_backward(e)
        ctx.shapes = x.shape, m.shape
        return e

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        (e,) = ctx.saved_tensors
        # Selected, not multiplied: what weighs nothing has no part in an infinite or unknown gradient either.
        into = torch.where(e == 0, 0.0, grad * e)
        of_x, of_m = ctx.shapes
        return None, into.sum_to_size(of_x), -into.sum_to_size(of_m)


def its_own_slope(rule: Callable[..., Tensor], x: Tensor, m: Tensor) -> Tensor:
    """rule(xp, x, m), an exponential of x − m, recorded as one."""
    result: Tensor = _Exponential.apply(rule, x, m)
    return result

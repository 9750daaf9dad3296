"""Inputs of a workload, and the float64 truth that every answer is held against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from . import products
from .workload import Workload

SAMPLE = 256  # rows compared with float64; the rest is checked for values never written
CHUNK = 2**24
SMOOTHING, Z_LOSS, SOFTCAP = 0.1, 1e-4, 30.0
# Largest error of an element relative to itself and the mean size.  Wide enough for libraries that
# round the logarithm of each probability to the logits' dtype; far too small for a wrong element.
LIMITS = {"float64": 1e-9, "float32": 1e-4, "float16": 0.03, "bfloat16": 0.15}


class Case(NamedTuple):
    """One copy of a workload's inputs; `out` takes results that are written to existing memory."""

    workload: Workload
    x: torch.Tensor
    original: torch.Tensor
    target: torch.Tensor
    upstream: torch.Tensor
    weight: torch.Tensor
    out: torch.Tensor

    @property
    def axis(self) -> int:
        """The axis that the operation works along."""
        return 0 if self.workload.variant == "axis 0" else -1


def make(workload: Workload, device: str) -> Case:
    """Normal logits of standard deviation 3, and an incoming gradient such as the workload gets."""
    generator = torch.Generator(device).manual_seed(0)
    if workload.operation in products.OPERATIONS:
        x, weight = products.inputs(workload, device)
        target = torch.randint(workload.columns, (workload.rows,), device=device, generator=generator)
        return Case(workload, x, x, target, torch.ones((), device=device), weight, torch.empty_like(x))
    shape = workload.rows, workload.columns
    dtype = getattr(torch, workload.dtype)
    x = torch.empty(shape, dtype=dtype, device=device).normal_(0, 3, generator=generator)
    target = torch.randint(workload.columns, shape[:1], device=device, generator=generator)
    if workload.operation == "cross_entropy":
        upstream = torch.ones((), device=device)
        if workload.variant == "none":
            upstream = torch.empty(shape[:1], device=device).uniform_(0.5, 1.5, generator=generator)
        elif workload.dtype == "float16":
            upstream = upstream * 2**15  # loss scaling, as much as half precision holds; without it gradients underflow
    elif workload.operation.startswith("logsumexp"):
        upstream = torch.empty(shape[:1], dtype=dtype, device=device).normal_(generator=generator)
    elif workload.operation.endswith("backward"):
        upstream = torch.empty_like(x).normal_(generator=generator)
    else:
        upstream = torch.ones((), device=device)
    weight = torch.empty(workload.columns, device=device).uniform_(0.5, 1.5, generator=generator)
    return Case(workload, x, _original(x, workload), target, upstream, weight, torch.empty_like(x))


def copy(case: Case) -> Case:
    """The same values in other memory."""
    x = case.original.clone()
    return case._replace(x=x, original=_original(x, case.workload), out=torch.empty_like(x))


def _original(x: torch.Tensor, workload: Workload) -> torch.Tensor:
    """What x is refilled from where a library takes its memory, as some losses do."""
    return x.clone() if workload.operation == "cross_entropy" else x


def sample(rows: int) -> list[int]:
    """The rows to compare: all of a few, otherwise an even choice with the first and the last."""
    if rows <= SAMPLE:
        return list(range(rows))
    return sorted({i * (rows - 1) // (SAMPLE - 1) for i in range(SAMPLE)})


def truth(case: Case) -> list[torch.Tensor]:
    """The right answers in float64, rows of arrays sampled as `sample` says, totals over all rows."""
    if case.workload.operation in products.OPERATIONS:
        return products.truth(case.workload, case.x, case.weight, case.target)
    x = case.original.T if case.axis == 0 else case.original
    rows = sample(len(x))
    leaf = x[rows].double().requires_grad_()
    operation = case.workload.operation
    if operation == "cross_entropy":
        return _cross_entropy_truth(case, leaf, rows)
    function = case.workload.function
    y = getattr(torch, function)(leaf, -1)
    if operation == function:
        return [y.detach()]
    upstream = case.upstream[rows].double()
    return list(torch.autograd.grad(y, leaf, upstream))


def _cross_entropy_truth(case: Case, leaf: torch.Tensor, rows: list[int]) -> list[torch.Tensor]:
    weighted = case.workload.variant == "all options"
    step = max(1, CHUNK // case.workload.columns)
    divisor = case.weight[case.target].double().sum() if weighted else len(case.x)
    if case.workload.variant == "none":
        losses = _losses(case, leaf, case.target[rows])[0]
        (gradient,) = torch.autograd.grad(losses, leaf, case.upstream[rows].double())
        return [losses.detach(), gradient]
    total = torch.zeros((), dtype=torch.float64, device=case.x.device)
    with torch.no_grad():
        for start in range(0, len(case.x), step):
            part = slice(start, start + step)
            losses, z_losses = _losses(case, case.original[part].double(), case.target[part])
            total += losses.sum() / divisor + z_losses.sum() / len(case.x)
    losses, z_losses = _losses(case, leaf, case.target[rows])
    mean = losses.sum() / divisor + z_losses.sum() / len(case.x)
    (gradient,) = torch.autograd.grad(mean, leaf, case.upstream.double())
    return [total, gradient]


def _losses(case: Case, x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's loss and z-loss with the workload's options."""
    index = target[:, None]
    if case.workload.variant != "all options":
        return x.logsumexp(-1) - x.gather(1, index)[:, 0], torch.zeros((), dtype=x.dtype, device=x.device)
    weight = case.weight.double()
    x = SOFTCAP * torch.tanh(x / SOFTCAP)
    lse = x.logsumexp(-1)
    of_target = weight[target] * (lse - x.gather(1, index)[:, 0])
    of_all = (lse * weight.sum() - x @ weight) / x.shape[-1]
    return (1 - SMOOTHING) * of_target + SMOOTHING * of_all, Z_LOSS * lse * lse


def worst_error(case: Case, answers: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> float:
    """The largest error of any answer beyond half its smallest step, relative to the element and a size; inf for a NaN.

    That size is the mean; for gradients the largest of the row, which bounds what their sums over it can be right to.
    """
    worst = 0.0
    gradient = case.workload.operation.endswith("backward") or case.workload.operation in products.OPERATIONS
    for answer, want in zip(answers, right, strict=True):
        if bool(answer.isnan().any()):
            return float("inf")
        got = answer.T if case.axis == 0 and answer.ndim == 2 else answer
        if got.shape != want.shape:
            got = got[sample(len(got))]
        size = want.abs()
        scale = size.amax(-1, keepdim=True) if gradient else size + size.mean()
        gap = ((got.double() - want).abs() - _half_a_step(answer.dtype)).clamp(min=0)
        worst = max(worst, float((gap / scale).max()))
    return worst


def _half_a_step(dtype: torch.dtype) -> float:
    """What rounding to the dtype may take from any number, however small: half the smallest subnormal.

    Probabilities of a million classes are around 1e-6, which float16 has as multiples of 6e-8: right to the last bit,
    they are 3 % off.  For a normal number rounding alone takes more than this, so it hides no error there.
    """
    about = torch.finfo(dtype)
    return about.smallest_normal * about.eps / 2

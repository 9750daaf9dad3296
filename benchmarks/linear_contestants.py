"""Who takes part in linear_h200.py: calls of this library, torch and its peers; (loss, dx, dw) are the answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

import online_softmax as osm

OPTIONS: dict[str, Any] = {"label_smoothing": 0.1, "z_loss": 1e-4, "softcap": 30.0}


class Case(NamedTuple):
    x: torch.Tensor
    w: torch.Tensor
    b: torch.Tensor
    t: torch.Tensor


Call = Callable[[Case], tuple[torch.Tensor, ...]]


def make(shape: tuple[int, int, int], device: str) -> Case:
    rows, features, classes = shape
    torch.manual_seed(0)
    kind = {"dtype": torch.bfloat16, "device": device}
    x = torch.randn(rows, features, **kind).requires_grad_()
    w = (torch.randn(classes, features, **kind) * (1.5 * features**-0.5)).requires_grad_()
    b = torch.zeros(classes, **kind).requires_grad_()
    t = torch.randint(classes, (rows,), device=device)
    return Case(x, w, b, t)


def training(loss: Callable[..., Any], *, bias: bool = False) -> Call:
    """Forward and backward, with (loss, dx, dw) as answers."""

    def call(case: Case) -> tuple[torch.Tensor, ...]:
        value = loss(case)
        value = value[0] if isinstance(value, tuple) else value
        leaves = [case.x, case.w, case.b] if bias else [case.x, case.w]
        return (value.detach(), *torch.autograd.grad(value, leaves))

    return call


def ours(**options: Any) -> Call:
    return training(lambda c: osm.linear_cross_entropy(c.x, c.w, c.t, **options))


def with_options(c: Case) -> torch.Tensor:
    return osm.linear_cross_entropy(c.x, c.w, c.t, linear_bias=c.b, **OPTIONS)


def loss_alone(case: Case) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        return (osm.linear_cross_entropy(case.x, case.w, case.t),)


def product(case: Case) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        return (torch.mm(case.x, case.w.t()),)


def torchs(c: Case) -> torch.Tensor:
    return F.cross_entropy(F.linear(c.x, c.w), c.t)


def torch_chunked() -> Call:
    options = torch.nn.LinearCrossEntropyOptions()
    return training(lambda c: F.linear_cross_entropy(c.x, c.w, c.t, options=options))


def liger() -> Call:
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy as function

    return training(lambda c: function(c.x, c.w, c.t))


def apple() -> Call:
    from cut_cross_entropy import linear_cross_entropy as function

    return training(lambda c: function(c.x, c.w, c.t))


def quack() -> Call:
    from quack.linear_cross_entropy import chunked_linear_cross_entropy as function

    return training(lambda c: function(c.x, c.w, c.t, chunk_size=4096, tuned=False))


def compiled() -> Call:
    function = torch.compile(lambda x, w, t: F.cross_entropy(F.linear(x, w), t), dynamic=False)
    return training(lambda c: function(c.x, c.w, c.t))


def contestants() -> dict[str, Callable[[], Call]]:
    """What makes each call; making may fail."""
    return {
        "product": lambda: product,
        "online-softmax": lambda: ours(),
        "online-softmax, least memory": lambda: ours(memory="least"),
        "online-softmax, all options": lambda: training(with_options, bias=True),
        "online-softmax, loss alone": lambda: loss_alone,
        "torch": lambda: training(torchs),
        "F.linear_cross_entropy": torch_chunked,
    }


def slower() -> dict[str, Callable[[], Call]]:
    """Peers that compile for every shape, beside what they are compared with."""
    found = {name: call for name, call in contestants().items() if name in ("product", "online-softmax")}
    return found | {"torch.compile": compiled, "Liger": liger, "Apple CCE": apple, "quack": quack}


def compile_ahead(shape: tuple[int, int, int]) -> None:
    """Ours on a few rows of as many classes: the kernels are then on disk."""
    from online_softmax.ops.linear_cross_entropy import plan

    few = 64
    plan.LEAST_BYTES["cuda"] = plan.LEAST_BYTES["cuda"] * few // shape[0]  # so that chunks are as wide as for all rows
    case = make((few, 64, shape[2]), "cuda")
    for call in (ours(), ours(memory="least"), training(with_options, bias=True), loss_alone):
        call(case)
    torch.cuda.synchronize()


def compile_all_ahead(shapes: list[tuple[int, int, int]]) -> None:
    """A process for each shape: one after another, kernels would take longer than what is measured."""
    workers = min(len(shapes), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        done = [pool.submit(compile_ahead, shape) for shape in shapes]
        wait(done, timeout=60)

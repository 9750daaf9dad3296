"""Who takes part in linear_h200.py: calls of this library, torch and its peers; (loss, dx, dw) are the answers."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import connection, get_context
from typing import Any, NamedTuple

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # processes compile side by side: see compile_all_ahead

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
    torch._dynamo.reset()  # one function for eleven shapes: after eight it would no longer be compiled
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
    """Peers that compile, beside what they are compared with."""
    found = {name: call for name, call in contestants().items() if name in ("product", "online-softmax")}
    return found | {"torch.compile": compiled, "Liger": liger, "Apple CCE": apple}


def slowest() -> dict[str, Callable[[], Call]]:
    """A peer that compiles for long, and may not load."""
    found = {name: call for name, call in contestants().items() if name in ("product", "online-softmax")}
    return found | {"quack": quack}


Shape = tuple[int, int, int]


def compile_ahead(shape: Shape, names: Sequence[str]) -> None:
    """One call of each: what it compiles is then on disk."""
    case = make(shape, "cuda")
    for name, prepare in (contestants() | slower()).items():
        if name in names:
            try:
                prepare()(case)
            except Exception as problem:  # told again when it is measured
                print(f"{name} at {shape}: {problem}"[:200], flush=True)
            gc.collect()
            torch.cuda.empty_cache()
    torch.cuda.synchronize()


def load_peers() -> None:
    """Peers import and set up a lot before their first call."""
    for prepare in (compiled, liger, apple):
        with contextlib.suppress(Exception):  # told when it is measured
            prepare()(make((64, 64, 512), "cuda"))


def compile_all_ahead(shapes: Sequence[Shape], seconds: float) -> float:
    """As many processes at a time as there are processors, and none after so many seconds: one after another, kernels
    would take longer than what is measured.  Gives the seconds that it took."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch", "online_softmax"])  # imported once
    ours = [name for name in contestants() if name.startswith("online-softmax")]
    small = min(shapes, key=math.prod)
    jobs = [(small, ["Liger"]), (small, ["Apple CCE"])]  # the same kernels for every shape
    jobs += [(shape, ["torch.compile"]) for shape in shapes] + [(shape, ours) for shape in shapes]
    waiting = [context.Process(target=compile_ahead, args=job, daemon=True) for job in jobs]
    start, running = time.monotonic(), []
    here = threading.Thread(target=load_peers, daemon=True)
    here.start()
    while (waiting or running or here.is_alive()) and time.monotonic() - start < seconds:
        while waiting and len(running) < (os.cpu_count() or 1):
            running.append(waiting.pop(0))
            running[-1].start()
        connection.wait([process.sentinel for process in running], timeout=0.2)
        running = [process for process in running if process.is_alive()]
    for process in running:
        process.terminate()
        process.join()
    here.join()
    return time.monotonic() - start

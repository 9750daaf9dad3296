"""Who takes part in a workload: for each library what is prepared, and what is timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import online_softmax as osm
from online_softmax._cpu import kept_memory_limit

from . import case as cases
from . import peers, products
from .case import Case
from .tables import OURS, OURS_NUMPY
from .workload import Workload


class Contestant(NamedTuple):
    """`prepare` runs before each call and is not timed; `call` takes what it gives, and returns the answers."""

    library: str
    prepare: Callable[[Case], Any]
    call: Callable[[Any], list[torch.Tensor]]


def contestants(case: Case) -> list[Contestant]:
    """Everyone who can do this workload, ours first."""
    if case.workload.variant == "fresh memory":
        return [_in_fresh_memory(contestant) for contestant in _contestants(case)]
    return _contestants(case)


def _in_fresh_memory(contestant: Contestant) -> Contestant:
    """The same when no freed result can be used again."""

    def prepare(case: Case) -> Any:
        limit = kept_memory_limit()
        osm.set_kept_memory(0)
        osm.set_kept_memory(limit)
        return contestant.prepare(case)

    return contestant._replace(prepare=prepare)


def _contestants(case: Case) -> list[Contestant]:
    workload = case.workload
    if workload.way != "cold":
        return _small(case)
    if workload.operation in products.OPERATIONS:
        return _around_products(workload)
    if workload.operation == "cross_entropy":
        return [_loss(library, function, workload) for library, function in peers.losses(case).items()]
    name = workload.function
    on_tensors = peers.on_tensors(name, case.axis, case.x.device.type)
    if workload.operation != name:
        return [_backward(library, function) for library, function in on_tensors.items()]
    if workload.variant == "existing output":
        return _existing_output(name)
    found = [_forward(library, function) for library, function in on_tensors.items()]
    return found + _on_arrays(case)


def yardsticks(device: str, operation: str) -> list[Contestant]:
    """A plain copy of the input and, where little is written, a plain maximum over the same bytes.

    For operations around matrix products one such product: of the logits, or of the scores.
    """
    if operation in products.OPERATIONS:
        return [Contestant("product", _as_it_is, _product)]

    def copy_by_numpy(case: Case) -> list[torch.Tensor]:
        source, out = _for_numpy(case.x), _for_numpy(case.out)
        out[...] = source
        return []

    def copy_by_torch(case: Case) -> list[torch.Tensor]:
        case.out.copy_(case.x)
        return []

    found = [Contestant("copy", _as_it_is, copy_by_torch)]
    if device == "cpu":
        found.append(Contestant("copy by NumPy", _as_it_is, copy_by_numpy))
    if operation == "logsumexp":
        found.append(Contestant("maximum", _as_it_is, lambda case: [case.x.max()]))
        if device == "cpu":
            found.append(Contestant("maximum by NumPy", _as_it_is, lambda case: [_for_numpy(case.x).max()]))
    return found


def _product(case: Case) -> list[torch.Tensor]:
    right = case.weight[0] if case.workload.operation == "attention" else case.weight
    return [case.x @ right.mT]


def _around_products(workload: Workload) -> list[Contestant]:
    """The loss of a layer with its gradients; attention as it is served."""
    if workload.operation == "attention":
        functions = products.attentions(workload.variant == "causal")

        def attend(function: peers.Function) -> Callable[[Case], list[torch.Tensor]]:
            return lambda case: [function(case.x, case.weight[0], case.weight[1])]

        return [Contestant(library, _as_it_is, attend(function)) for library, function in functions.items()]

    def train(function: peers.Function) -> Callable[[Case], list[torch.Tensor]]:
        def call(case: Case) -> list[torch.Tensor]:
            x, weight = case.x.detach().requires_grad_(), case.weight.detach().requires_grad_()
            loss = function(x, weight, case.target)
            return [loss.detach(), *torch.autograd.grad(loss, (x, weight))]

        return call

    return [Contestant(library, _as_it_is, train(function)) for library, function in products.losses().items()]


def _for_numpy(x: torch.Tensor) -> peers.Array:
    """The same memory as an array: NumPy has no bfloat16, and sees integers instead."""
    return x.numpy() if x.dtype != torch.bfloat16 else x.view(torch.int16).numpy()


def _as_it_is(case: Case) -> Case:
    return case


def _forward(library: str, function: peers.Function) -> Contestant:
    return Contestant(library, _as_it_is, lambda case: [function(case.x)])


def _on_arrays(case: Case) -> list[Contestant]:
    """The libraries for NumPy arrays, on inputs that such an array can hold."""
    if case.x.device.type != "cpu" or case.workload.dtype != "float32":
        return []

    axis = case.axis

    def contestant(library: str, function: peers.Function) -> Contestant:
        return Contestant(library, lambda case: case.x.numpy(), lambda array: [function(array, axis=axis)])

    return [contestant(library, function) for library, function in peers.on_arrays(case.workload.function).items()]


def _existing_output(name: str) -> list[Contestant]:
    """Results written to memory that the caller holds already, poisoned before each call."""
    ours, torchs = getattr(osm, name), getattr(torch, name)
    numpys = peers.on_arrays(name)["NumPy"]

    def prepare(case: Case) -> Case:
        case.out.fill_(float("nan"))
        return case

    def by_numpy(function: peers.Function) -> Callable[[Case], list[torch.Tensor]]:
        return lambda case: [function(case.x.numpy(), axis=-1, out=case.out.numpy())]

    return [
        Contestant(OURS, prepare, lambda case: [ours(case.x, axis=-1, out=case.out)]),
        Contestant("torch", prepare, lambda case: [torchs(case.x, -1, out=case.out)]),
        Contestant(OURS_NUMPY, prepare, by_numpy(ours)),
        Contestant("NumPy", prepare, by_numpy(numpys)),
    ]


def _backward(library: str, function: peers.Function) -> Contestant:
    """Backward alone; the forward pass that it needs is prepared."""

    def prepare(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = case.x.detach().requires_grad_()
        return function(x), x, case.upstream

    def call(prepared: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> list[torch.Tensor]:
        y, x, upstream = prepared
        return list(torch.autograd.grad(y, x, upstream))

    return Contestant(library, prepare, call)


class _Produced(torch.autograd.Function):
    """Logits as a layer would produce them: not a leaf, so that a loss may take their memory.

    Backward hands the gradient to `taken` and asks for nothing further.
    """

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, x: torch.Tensor, taken: list[torch.Tensor]) -> torch.Tensor:
        ctx.taken = taken
        return x.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        ctx.taken.append(gradient)
        return gradient.new_zeros((), dtype=torch.float32), None, None


def _loss(library: str, function: peers.Function, workload: Workload) -> Contestant:
    """Loss and gradient, end to end as a training step runs them.

    Everyone's logits are filled anew: Liger, and we with ``inplace=True``, leave the gradient in their place.
    """

    def prepare(case: Case) -> tuple[torch.Tensor, Case, list[torch.Tensor]]:
        case.x.copy_(case.original)
        taken: list[torch.Tensor] = []
        anchor = torch.zeros((), device=case.x.device, requires_grad=True)
        return _Produced.apply(anchor, case.x, taken), case, taken

    def call(prepared: tuple[torch.Tensor, Case, list[torch.Tensor]]) -> list[torch.Tensor]:
        logits, case, taken = prepared
        loss = function(logits, case.target)
        if case.upstream.ndim == 0 and workload.dtype != "float16":
            loss.backward()
        else:
            loss.backward(case.upstream.to(loss.dtype))
        return [loss.detach(), *taken]

    return Contestant(library, prepare, call)


def _small(case: Case) -> list[Contestant]:
    """Whole calls, with nothing prepared: what Python and the library spend around a tiny input."""
    if case.workload.operation == "cross_entropy":
        loss: dict[str, peers.Function] = {OURS: osm.cross_entropy, "torch": torch.nn.functional.cross_entropy}
        return [Contestant(library, _as_it_is, _loss_of_leaf(function)) for library, function in loss.items()]
    softmax: dict[str, peers.Function] = {
        OURS: lambda x: osm.softmax(x, axis=-1),
        "torch": lambda x: torch.softmax(x, -1),
    }
    if case.workload.operation == "softmax":
        return [_forward(library, function) for library, function in softmax.items()] + _on_arrays(case)
    return [Contestant(library, _as_it_is, _softmax_of_leaf(function)) for library, function in softmax.items()]


def _softmax_of_leaf(function: peers.Function) -> Callable[[Case], list[torch.Tensor]]:
    def call(case: Case) -> list[torch.Tensor]:
        y = function(case.x.requires_grad_())
        return list(torch.autograd.grad(y, case.x, case.upstream))

    return call


def _loss_of_leaf(function: peers.Function) -> Callable[[Case], list[torch.Tensor]]:
    def call(case: Case) -> list[torch.Tensor]:
        loss = function(case.x.requires_grad_(), case.target)
        return [loss.detach(), *torch.autograd.grad(loss, case.x)]

    return call


def memory_call(workload: list[Any], library: str, rows: int) -> Callable[[], list[torch.Tensor]]:
    """One call of one library on the CPU, for measuring its peak memory in a process of its own."""
    case = cases.make(Workload(*workload)._replace(rows=rows), "cpu")
    chosen = next(contestant for contestant in contestants(case) if contestant.library == library)
    return lambda: chosen.call(chosen.prepare(case))

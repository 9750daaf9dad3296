"""What the autograd layers of all operations share.  Imported only once a tensor has arrived.

A call takes one of two ways.  An ordinary tensor in eager mode goes straight to an implementation, or to an
`autograd.Function` when a gradient may be wanted: a few microseconds.  Under `torch.compile`, and for fake and
subclass tensors, the same work is reached through an operator in the namespace `torch.ops.online_softmax`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._arrays import dense, result_dtype
from .._arrays import refuse_transforms as refuse_transforms

# Everything the operators need stays alive as long as this does.
LIBRARY = torch.library.Library("online_softmax", "DEF")

_PLAIN = (Tensor, torch.nn.Parameter)
_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

# In a step with a backward of its own thread, every look-up finds cold caches: these are found once.
_compiling = torch.compiler.is_dynamo_compiling  # where else one compiles, tensors are fake ones or a mode is on
_strided = torch.strided
_transforms = torch._C._functorch.peek_interpreter_stack
in_transform = torch._C._functorch.is_functorch_wrapped_tensor
_modes = torch._C._len_torch_dispatch_stack
_trace = torch._C._get_tracing_state
_has_storage = torch._C._has_storage


def is_ordinary(x: Tensor) -> bool:
    """Whether x can pass every check below at once: dense, floating, with data, in eager mode with nothing special on.

    Small calls are nothing but overhead: this is asked first, and what says no goes the long way, to its own error.
    """
    return (
        not _compiling()
        and type(x) in _PLAIN
        and x.dtype in _FLOATS
        and x.layout is _strided
        and not (x.is_nested or x.is_meta or x.is_neg())
        and _transforms() is None
        and not in_transform(x)  # one that has left its transform
        and forward_ad._current_level < 0
        and not _modes()
        and _trace() is None
    )


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether eager mode may skip the operator: ordinary tensors with data, nothing being compiled or traced."""
    if torch.compiler.is_compiling():
        return False
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _PLAIN or tensor.is_meta):
            return False
    return not torch._C._len_torch_dispatch_stack()


def records(*tensors: Tensor | None) -> bool:
    """Whether autograd would record an operation on these tensors."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def autocast_to_float32(x: Tensor) -> bool:
    """Whether torch's autocast would run softmax and losses of x in fp32: on CUDA only."""
    return x.is_cuda and x.dtype != torch.float64 and torch.is_autocast_enabled("cuda")


def autocast_dtype(kind: str) -> torch.dtype | None:
    """What torch's autocast multiplies in on a kind of device; None where it is off, or is not known (meta)."""
    if not torch._C._is_any_autocast_enabled():
        return None
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else None


def without_autocast(kind: str) -> AbstractContextManager[Any]:
    """Autocast off for a while; turning off one that is off would take as long as a launch."""
    return nullcontext() if autocast_dtype(kind) is None else torch.autocast(kind, enabled=False)


def as_floating(x: Tensor, name: str, dtype: Any = None) -> Tensor:
    """x itself if it is floating, else in torch's default dtype, or in `dtype` if that is wider; complex and sparse
    tensors are refused."""
    x = dense(x, name)
    if x.dtype in _FLOATS:
        return x
    if x.dtype.is_complex or x.dtype.is_floating_point or x.is_quantized:
        spelled = str(x.dtype).removeprefix("torch.")
        raise TypeError(f"{name} has dtype {spelled}; wanted float16, bfloat16, float32, float64, integers or bool")
    wanted = torch.get_default_dtype()
    return x.to(wanted if dtype is None else torch.promote_types(wanted, result_dtype(dtype, x)))


def undecorated_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` for calls with no transform of torch.func about, as `is_ordinary` has made sure.

    It is what torch's own apply ends with, in two thirds of the time.
    """
    found: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return found


def undecorated_backward(function: type[torch.autograd.Function]) -> None:
    """Let the engine call `function.backward` itself, and not by way of torch's search for it."""
    node: Any = getattr(function, "_backward_cls", None)
    if node is not None:
        node.apply = function.backward


def stored(grad: Any) -> Any:
    """An incoming gradient as its memory holds it (see _arrays.dense); a batch of them is refused."""
    if grad is None:
        return None
    if not _has_storage(grad):
        raise NotImplementedError(
            "online_softmax functions take one incoming gradient at a time: leave out is_grads_batched and vectorize"
        )
    return grad.resolve_neg() if grad.is_neg() else grad


def own(output: Tensor) -> Tensor:
    """An operator's output in its own memory: compilers take outputs for aligned, and for strangers to each other."""
    return output.clone() if output.storage_offset() else output


def define(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> str:
    """Register an operator that `run` computes on every device; returns its qualified name."""
    name = "online_softmax::" + schema.split("(", 1)[0]
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(name, fake, lib=LIBRARY)
    return name


def once(*_: Any) -> None:
    """Refuse a second derivative through a compiled or subclass call, where it would be silently cut off."""
    raise RuntimeError("online_softmax operators have no second derivative here: call in eager mode on plain tensors")


def first_derivative_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A `backward` of `stored` gradients whose result cannot be differentiated again: that raises, rather than count
    as constant."""

    @functools.wraps(backward)
    def wrapper(ctx: Any, *grads: Any) -> Any:
        grads = tuple(map(stored, grads))
        with torch.no_grad():
            found = backward(ctx, *grads)
        if not torch.is_grad_enabled():  # no create_graph=True
            return found
        sources = [x for x in (*ctx.saved_tensors, *grads) if isinstance(x, Tensor) and x.requires_grad]
        return tuple(_Refuse.apply(x, *sources) if isinstance(x, Tensor) else x for x in found)

    return wrapper


class _Refuse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *sources: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError("this online_softmax function has no second derivative")

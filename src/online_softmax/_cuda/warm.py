"""Compiling ahead, for servers and training: the first call should not wait for the compiler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from .._arguments import flag, integer

if TYPE_CHECKING:
    import torch

    from ..ops.cross_entropy.options import Options

OPERATIONS = ("softmax", "log_softmax", "logsumexp", "cross_entropy", "merge_attention")


def warm_up(
    lengths: Iterable[int],
    *,
    dtypes: Iterable[torch.dtype] | None = None,
    operations: Iterable[str] = ("softmax", "log_softmax", "logsumexp", "cross_entropy"),
    device: torch.device | str | int = "cuda",
    target_dtype: torch.dtype | None = None,
    weight: bool = False,
    label_smoothing: float = 0.0,
    scale: float = 1.0,
    softcap: float | None = None,
    z_loss: float = 0.0,
    return_aux: bool = False,
    partials: Iterable[int] = (2,),
) -> None:
    """Compile and load the CUDA kernels that calls on rows of these lengths need, forward and backward.

    Without it the first call of each kind compiles its kernel, about a second, and keeps it on disk for later
    processes. A kernel depends on a row's length and dtype and on which options are used, not on the options' values,
    and on how many rows there are only where they are few, which is seen to as well. What is compiled is for rows along
    the last axis that lie one after another, in memory that starts on 16 bytes, as that of a new tensor does; results
    have the input's dtype, or autocast's where this is called inside `torch.autocast`.

    Parameters
    ----------
    lengths : iterable of int
        Elements a row: classes or vocabulary; for merge_attention the head size.
    dtypes : iterable of torch.dtype, optional
        Of the inputs: any of float16, bfloat16, float32, float64. Default: bfloat16 and float32.
    operations : iterable of str
        Any of "softmax", "log_softmax", "logsumexp", "cross_entropy", "merge_attention". "cross_entropy" covers the
        loss alone and with its gradient, reduced or not.
    device : torch.device, str or int
        The CUDA device: kernels are loaded for each device by itself.
    target_dtype : torch.dtype, optional
        Of cross_entropy's targets: int64 (default) or int32 for class indices, a floating dtype for probabilities.
    weight : bool
        Whether cross_entropy will be given class weights.
    label_smoothing, scale, softcap, z_loss, return_aux
        As cross_entropy will be given them. One call warms one choice of options up.
    partials : iterable of int
        How many partial results merge_attention will be given.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit; nothing has been compiled then.
    RuntimeError
        If the CUDA kernels cannot run here: no PyTorch, no CUDA device, no compiler. The text says what is missing.

    Examples
    --------
    >>> import online_softmax as osm
    >>> osm.warm_up([50257], label_smoothing=0.1)  # doctest: +SKIP
    """
    _require_torch()
    wanted = _Wanted(
        _counts("lengths", lengths),
        _dtypes(dtypes),
        _operations(operations),
        _target_dtype(target_dtype),
        flag("weight", weight),
        _options(label_smoothing, scale, softcap, z_loss),
        flag("return_aux", return_aux),
        _counts("partials", partials),
    )
    where = _device(device)
    import torch

    with torch.cuda.device(where), _recording():
        for dtype in wanted.dtypes:
            for length in wanted.lengths:
                _warm_rows(wanted, length, dtype, where)
                if "cross_entropy" in wanted.operations:
                    _warm_cross_entropy(wanted, length, dtype, where)
                if "merge_attention" in wanted.operations:
                    _warm_merge_attention(wanted, length, dtype, where)
        torch.cuda.synchronize(where)


class _Wanted(NamedTuple):
    """The checked arguments."""

    lengths: list[int]
    dtypes: list[torch.dtype]
    operations: list[str]
    target_dtype: torch.dtype
    weight: bool
    options: Options
    return_aux: bool
    partials: list[int]


def _require_torch() -> None:
    from . import availability

    if find_spec("torch") is None:
        raise RuntimeError(f"warm_up cannot run here: {availability()}")


def _listed(name: str, given: Any, wanted: str) -> list[Any]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{name} is {given!r}; wanted a list of {wanted}")
    return list(given)


def _counts(name: str, given: Iterable[int]) -> list[int]:
    found = []
    for index, each in enumerate(_listed(name, given, "positive ints")):
        count = integer(f"{name}[{index}]", each, "a positive int")
        if count <= 0:
            raise ValueError(f"{name}[{index}] is {count}; wanted a positive int")
        found.append(count)
    return found


def _dtypes(given: Iterable[torch.dtype] | None) -> list[torch.dtype]:
    import torch

    if given is None:
        return [torch.bfloat16, torch.float32]
    names = "torch.float16, torch.bfloat16, torch.float32 and torch.float64"
    found = _listed("dtypes", given, f"any of {names}")
    for each in found:
        if each not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            raise TypeError(f"dtypes holds {each!r}; wanted any of {names}")
    return found


def _operations(given: Iterable[str]) -> list[str]:
    found = _listed("operations", given, f"any of {', '.join(OPERATIONS)}")
    for each in found:
        if each not in OPERATIONS:
            raise ValueError(f"operations holds {each!r}; wanted any of {', '.join(OPERATIONS)}")
    return found


def _target_dtype(given: torch.dtype | None) -> torch.dtype:
    import torch

    if given is None:
        return torch.int64
    if given in (torch.int32, torch.int64) or (isinstance(given, torch.dtype) and given.is_floating_point):
        return given
    raise TypeError(f"target_dtype is {given!r}; wanted torch.int64, torch.int32 or a floating dtype")


def _options(label_smoothing: float, scale: float, softcap: float | None, z_loss: float) -> Options:
    from ..ops.cross_entropy.arguments import make_options

    return make_options(-100, "mean", label_smoothing, scale, softcap, z_loss)


def _device(given: torch.device | str | int) -> torch.device:
    """The device itself; a RuntimeError where the kernels cannot run."""
    import torch

    from . import availability

    try:
        device = torch.device("cuda", given) if isinstance(given, int) else torch.device(given)
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"device is {given!r}; wanted a CUDA device ({str(error).splitlines()[0]})") from None
    if device.type != "cuda":
        raise ValueError(f"device is {given!r}; wanted a CUDA device")
    missing = availability()
    if missing is not None:
        raise RuntimeError(f"warm_up cannot run here: {missing}")
    count = torch.cuda.device_count()
    if device.index is not None and device.index >= count:
        raise ValueError(f"device is {given!r}; there are {count} CUDA devices, numbered from 0")
    return torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)


@contextmanager
def _recording() -> Iterator[None]:
    """Autograd on, whatever the caller has switched off: backward's kernels are wanted too."""
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        yield


def _warm_rows(wanted: _Wanted, length: int, dtype: torch.dtype, device: torch.device) -> None:
    import torch

    from ..ops.softmax.api import log_softmax, logsumexp, softmax

    functions: dict[str, Any] = {"softmax": softmax, "log_softmax": log_softmax, "logsumexp": logsumexp}
    for name, function in functions.items():
        if name in wanted.operations:
            x = torch.zeros(1, length, dtype=dtype, device=device, requires_grad=True)
            y = function(x, -1, impl="cuda")
            torch.autograd.grad(y, x, torch.zeros_like(y))


def _warm_cross_entropy(wanted: _Wanted, length: int, dtype: torch.dtype, device: torch.device) -> None:
    import torch

    from ..ops.cross_entropy.api import cross_entropy, cross_entropy_with_grad
    from ..ops.cross_entropy.cuda import MOST_SCALED_BY_TORCH

    options: dict[str, Any] = {**wanted.options._asdict(), "return_aux": wanted.return_aux, "impl": "cuda"}
    weight = torch.ones(length, device=device) if wanted.weight else None
    # One block may take all rows of a small batch, and torch scales its gradient.
    for rows in {1, MOST_SCALED_BY_TORCH // length + 1}:
        shape = (rows, length) if wanted.target_dtype.is_floating_point else (rows,)
        target = torch.zeros(shape, dtype=wanted.target_dtype, device=device)
        x = torch.zeros(rows, length, dtype=dtype, device=device)
        cross_entropy_with_grad(x, target, weight, **options)
        cross_entropy(x, target, weight, **options)
        # The reduced loss makes its gradient in forward (but in fp16), the unreduced one in backward.
        x.requires_grad_()
        for reduction in ("mean", "none"):
            result = cross_entropy(x, target, weight, **{**options, "reduction": reduction})
            loss = result[0] if wanted.return_aux else result
            torch.autograd.grad(loss, x, torch.ones_like(loss))


def _warm_merge_attention(wanted: _Wanted, length: int, dtype: torch.dtype, device: torch.device) -> None:
    import torch

    from ..ops.attention.api import merge_attention

    compute = torch.float64 if dtype == torch.float64 else torch.float32
    for count in wanted.partials:
        outs = torch.zeros(count, 1, length, dtype=dtype, device=device, requires_grad=True)
        lses = torch.zeros(count, 1, dtype=compute, device=device, requires_grad=True)
        merged = merge_attention(outs, lses, impl="cuda")
        torch.autograd.grad(list(merged), [outs, lses], [torch.zeros_like(part) for part in merged])
        # Lists have a kernel for each number of partial results; long ones that do not lie evenly are stacked first.
        uneven = [[x.detach()[0].clone().requires_grad_() for _ in range(count)] for x in (outs, lses)]
        for tensors in uneven:
            tensors[:2] = tensors[1::-1]
        merged = merge_attention(*uneven, impl="cuda")
        torch.autograd.grad(list(merged), [*uneven[0], *uneven[1]], [torch.zeros_like(part) for part in merged])

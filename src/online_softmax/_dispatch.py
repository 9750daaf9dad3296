"""Which implementation runs a call: one table from (kind of array, device, impl=) to a module.

Every implementation of an operation is a module with the same functions, imported on first use:
`ops/<operation>/reference.py`, `cpu.py` and `cuda.py`.  `impl="auto"` takes the first one available for the array;
a named implementation runs or raises with what is missing, and is never replaced by another.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import NamedTuple

from ._arrays import Array, is_tensor, kind

IMPLEMENTATIONS = ("auto", "reference", "cpu", "cuda")

# (kind of array, device) -> the implementation that "auto" prefers.  Everything else takes the reference.
_PREFERRED = {("numpy", "cpu"): "cpu", ("torch", "cpu"): "cpu", ("torch", "cuda"): "cuda"}


class Availability(NamedTuple):
    """One implementation: its name, whether it can run here, and which variant runs or what is missing."""

    impl: str
    available: bool
    detail: str


def device_type(x: Array) -> str:
    """'cpu', 'cuda', 'mps', …: where x lives; arrays of other libraries count as 'cpu'."""
    if not is_tensor(x) or x.is_cpu:
        return "cpu"
    return "cuda" if x.is_cuda else x.device.type  # which makes two objects: four times as slow


def implementation(operation: str, x: Array, impl: str) -> ModuleType:
    """The module that runs `operation` on x."""
    if is_tensor(x):
        return implementation_on(operation, x, impl)
    if not isinstance(impl, str):
        check_impl(impl)
    return _pick(operation, kind(x), "cpu", impl)


def implementation_on(operation: str, x: Array, impl: str) -> ModuleType:
    """The same for what is known to be a tensor."""
    if not isinstance(impl, str):
        check_impl(impl)
    return _pick(operation, "torch", "cuda" if x.is_cuda else device_type(x), impl)


@cache
def _pick(operation: str, array_kind: str, device: str, impl: str) -> ModuleType:
    check_impl(impl)
    preferred = _PREFERRED.get((array_kind, device))
    if impl == "reference" or (impl == "auto" and preferred is None):
        return _load(operation, "reference")
    if impl == "auto":
        assert preferred is not None
        missing = _missing(preferred)
        if missing is None:
            return _load(operation, preferred)
        if preferred == "cuda":
            warnings.warn(f"CUDA tensors run on the slow reference implementation: {missing}", RuntimeWarning, 4)
        return _load(operation, "reference")
    if impl != preferred:
        raise ValueError(_mismatch(impl, array_kind, device))
    missing = _missing(impl)
    if missing is not None:
        raise RuntimeError(f"impl is {impl!r}, which cannot run here: {missing}")
    return _load(operation, impl)


def _mismatch(impl: str, array_kind: str, device: str) -> str:
    """What a named implementation takes, what came, and what to do about it."""
    came = {"numpy": "a NumPy array", "torch": f"a torch tensor on {device}"}.get(array_kind, "another library's array")
    if impl == "cpu":
        return f"impl is 'cpu', which takes a NumPy array or a torch tensor on the CPU; got {came}"
    missing = _missing("cuda")
    hint = "move it there with .to('cuda')" if missing is None else f"nor could it run here: {missing}"
    return f"impl is 'cuda', which takes a torch tensor on a CUDA device; got {came} ({hint})"


def check_impl(impl: str) -> None:
    """Raise ValueError unless impl is one of IMPLEMENTATIONS."""
    if impl not in IMPLEMENTATIONS:
        raise ValueError(f"impl is {impl!r}; wanted one of {', '.join(map(repr, IMPLEMENTATIONS))}")


def refuse_named(impl: str, what: str) -> None:
    """Raise for an option that only the reference implements, when another implementation was named."""
    check_impl(impl)
    if impl not in ("auto", "reference"):
        raise ValueError(f"{what} runs on the reference implementation only; impl is {impl!r}: leave it at 'auto'")


def _load(operation: str, name: str) -> ModuleType:
    return importlib.import_module(f".ops.{operation}.{name}", __package__)


@cache
def _missing(impl: str) -> str | None:
    """What keeps `impl` from running on this machine; None when nothing does."""
    return _CHECKS[impl]()


def _missing_cpu() -> str | None:
    try:
        importlib.import_module("._cpu", __package__)
    except ImportError as error:
        return f"the compiled kernels were not built or do not load ({error})"
    return None


def _missing_cuda() -> str | None:
    try:
        module = importlib.import_module("._cuda", __package__)
    except ImportError as error:
        return f"the CUDA kernels are not part of this installation ({error})"
    reason: str | None = module.availability()
    return reason


_CHECKS: dict[str, Callable[[], str | None]] = {"cpu": _missing_cpu, "cuda": _missing_cuda}


def availability() -> list[Availability]:
    """Every implementation and whether it can run here, for `online-softmax doctor`."""
    found = [
        Availability(
            "reference", True, "NumPy, torch and any array-API library (linear_cross_entropy: NumPy and torch)"
        )
    ]
    for impl in _CHECKS:
        missing = _missing(impl)
        detail = missing if missing is not None else importlib.import_module(f"._{impl}", __package__).describe()
        found.append(Availability(impl, missing is None, detail))
    return found

"""The other libraries: which are installed, and how each is asked to do an operation."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import online_softmax as osm

from .. import terminal
from .case import SMOOTHING, SOFTCAP, Z_LOSS, Case
from .compiling import compiled
from .tables import OURS, OURS_NUMPY

PACKAGES = {
    "NumPy": "numpy",
    "SciPy": "scipy",
    "torch": "torch",
    "Liger": "liger-kernel",
    "quack": "quack-kernels",
    "Apple CCE": "cut-cross-entropy",
}
Function = Callable[..., Any]
Array = np.ndarray[Any, np.dtype[Any]]


def versions() -> dict[str, str]:
    """The versions of the peers that are installed."""
    found = {}
    for library, package in PACKAGES.items():
        try:
            found[library] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def _load(module: str, name: str) -> Function | None:
    """A function of an optional package; None, said once, when the package is there but does not load."""
    package = module.partition(".")[0]
    try:
        function: Function = getattr(importlib.import_module(module), name)
    except Exception as problem:  # kernel packages fail to load in many ways: no GPU, another torch, no compiler
        if package in sys.modules or importlib.util.find_spec(package) is not None:
            why = f"{type(problem).__name__}: {problem}".splitlines()[0]
            terminal.note(f"{module}.{name} takes no part, it does not load: {why[:200]}")
        return None
    return function


def numpy_softmax(x: Array, axis: int = -1, out: Array | None = None) -> Array:
    """The formula as most programs write it."""
    y: Array = np.subtract(x, x.max(axis=axis, keepdims=True), out=out)
    np.exp(y, out=y)
    y /= y.sum(axis=axis, keepdims=True)
    return y


def numpy_log_softmax(x: Array, axis: int = -1, out: Array | None = None) -> Array:
    """Likewise."""
    y: Array = np.subtract(x, x.max(axis=axis, keepdims=True), out=out)
    y -= np.log(np.exp(y).sum(axis=axis, keepdims=True))
    return y


def numpy_logsumexp(x: Array, axis: int = -1) -> Array:
    """Likewise."""
    m = x.max(axis=axis, keepdims=True)
    lse: Array = np.log(np.exp(x - m).sum(axis=axis)) + m.squeeze(axis)
    return lse


def on_arrays(operation: str) -> dict[str, Function]:
    """Functions of a NumPy array and `axis=`, by library."""
    functions = {OURS_NUMPY: getattr(osm, operation)}
    scipy_function = _load("scipy.special", operation)
    if scipy_function is not None:
        functions["SciPy"] = scipy_function
    functions["NumPy"] = globals()[f"numpy_{operation}"]
    return functions


def on_tensors(operation: str, axis: int, device: str) -> dict[str, Function]:
    """Functions of a tensor alone, by library."""
    ours, torchs = getattr(osm, operation), getattr(torch, operation)
    functions: dict[str, Function | None] = {
        OURS: lambda x: ours(x, axis=axis),
        "torch": lambda x: torchs(x, axis),
        "torch.compile": compiled(lambda x: torchs(x, axis)),
    }
    if device == "cuda" and operation == "softmax" and axis == -1:
        functions |= {
            "quack": _load("quack.softmax", "softmax"),
            "Liger": _load("liger_kernel.transformers.functional", "liger_softmax"),
        }
    return {library: function for library, function in functions.items() if function is not None}


def losses(case: Case) -> dict[str, Function]:
    """Functions of logits and target that give the workload's loss, by library."""
    variant = case.workload.variant
    if variant == "inplace":
        return {OURS: lambda x, t: osm.cross_entropy(x, t, inplace=True)} | _gpu_losses(case, "mean", True)
    if variant == "all options":
        return _losses_with_all_options(case)
    reduction = "none" if variant == "none" else "mean"
    functions: dict[str, Function] = {
        OURS: lambda x, t: osm.cross_entropy(x, t, reduction=reduction),
        "torch": lambda x, t: F.cross_entropy(x, t, reduction=reduction),
        "torch.compile": compiled(lambda x, t: F.cross_entropy(x, t, reduction=reduction)),
    }
    if case.x.dtype != torch.float32:
        functions["torch .float()"] = lambda x, t: F.cross_entropy(x.float(), t, reduction=reduction)
    return functions | _gpu_losses(case, reduction, False)


def _gpu_losses(case: Case, reduction: str, inplace: bool) -> dict[str, Function]:
    """Losses of the libraries for GPUs.  Liger's gradient always takes the logits' memory."""
    if case.x.device.type != "cuda":
        return {}
    functions: dict[str, Function] = {}
    quack = _load("quack.cross_entropy", "cross_entropy")
    if quack is not None:
        functions["quack"] = lambda x, t: quack(x, t, reduction=reduction, inplace_backward=inplace)
    liger = _load("liger_kernel.transformers.functional", "liger_cross_entropy")
    if liger is not None:
        functions["Liger"] = lambda x, t: liger(x, t, reduction=reduction)
    return functions


def _losses_with_all_options(case: Case) -> dict[str, Function]:
    weight = case.weight

    def composed(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        x = SOFTCAP * torch.tanh(x.float() / SOFTCAP)
        z_loss = Z_LOSS * torch.logsumexp(x, -1).square().mean()
        return F.cross_entropy(x, t, weight, label_smoothing=SMOOTHING) + z_loss

    options: dict[str, Any] = {"label_smoothing": SMOOTHING, "softcap": SOFTCAP}
    functions: dict[str, Function] = {
        OURS: lambda x, t: osm.cross_entropy(x, t, weight, z_loss=Z_LOSS, **options),
        "torch": composed,
        "torch.compile": compiled(composed),
    }
    if case.x.device.type == "cuda":
        liger = _load("liger_kernel.transformers.functional", "liger_cross_entropy")
        if liger is not None:
            functions["Liger"] = lambda x, t: liger(x, t, weight, lse_square_scale=Z_LOSS, **options)
    return functions

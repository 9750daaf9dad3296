"""What an argument is: NumPy array, torch tensor or another array-API array, and its floating dtype.

Nothing here imports torch: a tensor can only arrive once the caller has imported it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_namespace, is_torch_namespace

Array = Any
"""A NumPy array, a torch tensor, or an array of any library that has the array-API standard."""

_FLOATS = ("float16", "bfloat16", "float32", "float64")
# A tuple: torch.compile does not follow a union of types.
_NUMPY_LIKE = (np.ndarray, np.generic, bool, int, float, complex, list, tuple)
_NUMPY_FLOATS = frozenset(map(np.dtype, ("float16", "float32", "float64")))


def is_tensor(x: object) -> bool:
    """Whether x is a torch tensor (never imports torch)."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def compiling() -> bool:
    """Whether torch.compile or torch.export follows this call."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


def detached(x: Any) -> Any:
    """A tensor without its autograd history; anything else as it is."""
    return x.detach() if is_tensor(x) else x


def is_numpy_like(x: object) -> bool:
    """Whether x is a NumPy array or scalar, or something that becomes one: a number, list or tuple."""
    return isinstance(x, _NUMPY_LIKE)


def namespace(*arrays: Array) -> Any:
    """The array-API namespace of arrays that are all of one library."""
    if all(is_tensor(array) for array in arrays):
        # torch.compile follows this way without meeting array_namespace's cache.
        import array_api_compat.torch

        return array_api_compat.torch
    return array_namespace(*arrays)


def device(x: Array) -> Any:
    """Where x lives, as its library's creation functions take it."""
    return getattr(x, "device", None)


def kind(x: Array) -> str:
    """'numpy', 'torch' or 'other'."""
    if isinstance(x, np.ndarray):
        return "numpy"
    return "torch" if is_tensor(x) else "other"


def as_array(x: Any, name: str) -> Array:
    """x as an array of its own library in native byte order; a TypeError that names the argument otherwise."""
    if is_tensor(x):
        return dense(x, name)
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a numpy.ma.MaskedArray, whose mask would be ignored: pass {name}.data, with where=")
    if is_numpy_like(x):
        array = _from_numpy_like(x, name)
        if array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
            raise TypeError(f"{name} has dtype {array.dtype}; wanted real numbers")
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        return array
    if hasattr(x, "__array_namespace__"):
        return x
    if hasattr(x, "__array__"):
        return as_array(np.asarray(x), name)
    raise TypeError(f"{name} is a {type(x).__name__}; wanted an array, a tensor, a number or a nested list of numbers")


def dense(x: Array, name: str) -> Array:
    """The tensor, as its memory holds it: negative views are copied, sparse and nested tensors refused.

    Every tensor that is no ordinary one (`ops._torch.is_ordinary`) passes here.
    """
    if x.is_nested:
        raise TypeError(f"{name} is a nested tensor; wanted a dense one")
    if x.layout != sys.modules["torch"].strided:
        raise TypeError(f"{name} has layout {x.layout}; wanted a dense tensor")
    refuse_transforms()
    if not sys.modules["torch"].compiler.is_compiling() and x.is_neg():
        return x.resolve_neg()  # z.conj().imag, which a kernel would read as z.imag
    return x


def refuse_transforms() -> None:
    """torch.func transforms would bypass the gradients defined here, forward-mode autograd lose its tangents, and a
    trace see nothing of what kernels do."""
    torch = sys.modules["torch"]
    if torch.compiler.is_compiling():
        return
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise NotImplementedError(
            "online_softmax functions do not support torch.func transforms (vmap, grad, jvp, …): "
            "they take batches of any shape directly, and .backward() or torch.autograd.grad for gradients"
        )
    if torch.autograd.forward_ad._current_level >= 0:
        raise NotImplementedError("online_softmax functions have no forward-mode derivatives: leave dual_level first")
    if torch._C._get_tracing_state() is not None:
        raise NotImplementedError(
            "online_softmax functions do not support torch.jit.trace, nor what is built on it: "
            "use torch.compile or torch.export"
        )


def _from_numpy_like(x: Any, name: str) -> np.ndarray:
    if isinstance(x, list | tuple) and any(is_tensor(item) for item in x):
        raise TypeError(f"{name} is a {type(x).__name__} of tensors: torch.stack them first")
    try:
        return np.asarray(x)
    except ValueError as error:
        raise TypeError(f"{name} cannot be made into an array: {error}") from None


def dtype_name(dtype: Any) -> str:
    """'float32' for numpy.float32, torch.float32, 'float32', array_api_strict.float32, …"""
    if isinstance(dtype, type) and issubclass(dtype, float | int | bool | np.generic):
        return np.dtype(dtype).name
    if isinstance(dtype, np.dtype):
        return dtype.name
    return str(dtype).rsplit(".", 1)[-1].strip("'>")


def is_floating(dtype: Any) -> bool:
    """Whether dtype is one of the four the library computes with."""
    return dtype_name(dtype) in _FLOATS


def is_integer(dtype: Any) -> bool:
    """Whether dtype is a signed or unsigned integer (not bool)."""
    return dtype_name(dtype).lstrip("u").startswith("int")


def floating_array(x: Any, name: str) -> Array:
    """x as a floating array of its own library in native byte order; a TypeError that names the argument otherwise."""
    if type(x) is np.ndarray and x.dtype in _NUMPY_FLOATS:
        return x
    return as_floating(as_array(x, name), name)


def default_float(xp: Any) -> Any:
    """The dtype integers and bools become: NumPy float64, torch's default dtype, the library's own default."""
    if is_torch_namespace(xp):
        return sys.modules["torch"].get_default_dtype()
    if is_numpy_namespace(xp):
        return xp.float64
    return xp.__array_namespace_info__().default_dtypes()["real floating"]


def as_floating(x: Array, name: str) -> Array:
    """x itself if it is floating, else x in the library's default float; complex and wider floats are refused."""
    if is_floating(x.dtype):
        return x
    spelled = dtype_name(x.dtype)
    if spelled == "bool" or is_integer(x.dtype):
        xp = namespace(x)
        return xp.astype(x, default_float(xp))
    raise TypeError(f"{name} has dtype {spelled}; wanted float16, bfloat16, float32, float64, an integer type or bool")


def result_dtype(dtype: Any, x: Array) -> Any:
    """`dtype=` as a dtype of x's library, or x's own when it is None."""
    if dtype is None:
        return x.dtype
    wanted = dtype_name(dtype)
    if wanted == "float":
        wanted = "float64"
    if wanted not in _FLOATS:
        raise TypeError(f"dtype is {dtype!r}; wanted float16, bfloat16, float32 or float64")
    found = _numpy_dtype(wanted, dtype) if isinstance(x, np.ndarray) else getattr(namespace(x), wanted, None)
    if found is None and wanted == "bfloat16" and isinstance(x, np.ndarray):
        raise TypeError(
            f"dtype is {dtype!r}, which numpy does not have by name; wanted the dtype ml_dtypes.bfloat16 itself"
        )
    if found is None:
        raise TypeError(f"dtype is {dtype!r}, which {namespace(x).__name__} does not have")
    return found


def _numpy_dtype(name: str, given: Any) -> np.dtype | None:
    """NumPy has bfloat16 only as the dtype object of a package that adds it."""
    try:
        return np.dtype(given if name == "bfloat16" else name)
    except TypeError:
        return None


def compute_dtype(xp: Any, *dtypes: Any) -> Any:
    """The dtype sums are kept in: float64 if any is float64, else float32."""
    return xp.float64 if any(dtype_name(dtype) == "float64" for dtype in dtypes) else xp.float32


def describe(x: Array) -> str:
    """An argument as error messages show it: kind, shape, dtype and, for tensors, device."""
    device = f" on {x.device}" if is_tensor(x) else ""
    return f"shape {tuple(x.shape)}, dtype {dtype_name(x.dtype)}{device}"

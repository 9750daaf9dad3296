"""What the CUDA kernels share: compiling, caching, launching, limits of the device, and the device headers."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["availability", "describe"]


def availability() -> str | None:
    """Why the CUDA kernels cannot run here, and what to install; None when they can."""
    if find_spec("torch") is None:
        return "PyTorch is not installed: pip install 'online-softmax[torch]'"
    import torch

    if torch.version.cuda is None:
        return "this PyTorch is built without CUDA: install one that is built with it (https://pytorch.org)"
    if not torch.cuda.is_available():
        return "PyTorch sees no CUDA device: `nvidia-smi` says whether the driver does"
    extra = "cuda12" if (torch.version.cuda or "").startswith("12") else "cuda13"
    try:
        from cuda.core import Program  # noqa: F401
        from cuda.core.utils import FileStreamProgramCache  # noqa: F401
    except ImportError as error:
        return (
            f"cuda-core, which compiles the kernels, is not installed ({error}): pip install 'online-softmax[{extra}]'"
        )
    if torch.cuda.get_device_capability()[0] < 8:
        return f"{torch.cuda.get_device_name()} is older than compute capability 8.0"
    return None


def describe() -> str:
    """One line on the device the kernels would run on."""
    import torch

    from .cache import folder

    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()}, compute capability {major}.{minor}, kernels kept in {folder()}"

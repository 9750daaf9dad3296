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
    missing = _missing_compiler("cuda12" if (torch.version.cuda or "").startswith("12") else "cuda13")
    if missing is not None:
        return missing
    from .limits import OLDEST

    devices = range(torch.cuda.device_count())
    if all(torch.cuda.get_device_capability(index)[0] < OLDEST for index in devices):
        return f"{torch.cuda.get_device_name()} is older than compute capability {OLDEST}.0"
    return None


def _missing_compiler(extra: str) -> str | None:
    """Why kernels cannot be compiled for this driver, and what to install; `extra` is the one that goes with torch."""
    try:
        from cuda.bindings import driver
        from cuda.core import Program  # noqa: F401
        from cuda.core.utils import FileStreamProgramCache  # noqa: F401
    except ImportError as error:
        return (
            f"cuda-core, which compiles the kernels, is not installed ({error}): pip install 'online-softmax[{extra}]'"
        )
    try:
        compiler = _compiler()
    except Exception as error:  # the library is looked for in many places, and each way of not finding it has its error
        return f"NVRTC does not load ({str(error).splitlines()[0]}): pip install 'online-softmax[{extra}]'"
    _, of_driver = driver.cuDriverGetVersion()
    if compiler[0] > of_driver // 1000:
        return (
            f"the driver is for CUDA {of_driver // 1000}.{of_driver % 1000 // 10}, NVRTC {compiler[0]}.{compiler[1]} "
            f"compiles for newer ones: pip install 'online-softmax[cuda{of_driver // 1000}]', or a newer driver"
        )
    return None


def _compiler() -> tuple[int, int]:
    """Major and minor version of NVRTC."""
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return major, minor


def describe() -> str:
    """One line on the device the kernels would run on, and on the compiler."""
    import torch

    from .cache import folder, shown

    major, minor = torch.cuda.get_device_capability()
    nvrtc = "NVRTC {}.{}".format(*_compiler())
    kept = f"kernels kept in {shown(folder())}"
    return f"{torch.cuda.get_device_name()}, compute capability {major}.{minor}, {nvrtc}, {kept}"

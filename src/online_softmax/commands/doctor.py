"""``online-softmax doctor``: what is installed, which implementations work and why others do not."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

import online_softmax

from .. import terminal

PACKAGES = "numpy", "array-api-compat", "torch", "scipy", "cuda-core", "cuda-bindings", "rich", "altair", "marimo"
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--json", action="store_true", help="print the same as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the report; always 0."""
    report = examine()
    if args.json:
        print(json.dumps(report, indent=2))
        return 0
    print(f"online-softmax {report['online-softmax']}\n")
    implementations = [
        (name, "available" if found["available"] else "not available", found["detail"])
        for name, found in report["implementations"].items()
    ]
    terminal.table("Implementations", ("impl", "state", "detail"), implementations, figures=False)
    terminal.facts("Packages", report["packages"])
    terminal.facts("Machine", report["machine"])
    return 0


def examine() -> dict[str, Any]:
    """Everything that the report shows, as plain data."""
    return {
        "online-softmax": online_softmax.__version__,
        "implementations": implementations(),
        "packages": {name: version(name) or "not installed" for name in PACKAGES},
        "machine": machine(),
    }


def version(package: str) -> str | None:
    """The installed version of a package, or None; nothing is imported."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def implementations() -> dict[str, dict[str, Any]]:
    """Each implementation: whether it can run here, and which variant runs or what is missing."""
    from .. import _dispatch

    return {name: {"available": available, "detail": detail} for name, available, detail in _dispatch.availability()}


def machine() -> dict[str, Any]:
    """The facts about this machine that decide how fast it is."""
    facts = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores available": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": _memory(),
        "huge pages": huge_pages(),
    }
    return facts | _torch_facts()


def huge_pages() -> str:
    """The setting of transparent huge pages: always, madvise, never, or unknown."""
    try:
        text = HUGE_PAGES.read_text()
    except OSError:
        return "unknown"
    return text.partition("[")[2].partition("]")[0] or "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (AttributeError, OSError, ValueError):
        return "unknown"


def _torch_facts() -> dict[str, Any]:
    """Threads and GPUs as torch sees them; a torch that does not load is a finding, not a failure."""
    if version("torch") is None:
        return {}
    try:
        import torch

        gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    except (ImportError, OSError, RuntimeError) as error:
        return {"torch": f"does not load: {str(error).splitlines()[0]}"}
    return {
        "torch threads": torch.get_num_threads(),
        "torch CUDA": torch.version.cuda or "none, built for CPU",
        "GPU": ", ".join(gpus) or "none",
    }

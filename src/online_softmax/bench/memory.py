"""Peak memory of one call on the CPU, read from the operating system in a process of its own.

A fresh process has no freed memory that a call could take unseen, and one that allocates by
``mmap`` alone gives memory back when an array dies, so resident memory tells what is in use.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

STATUS = Path("/proc/self/status")


def peak_extra(function: str, **arguments: Any) -> int:
    """Bytes that a call takes at its peak beyond what its inputs hold.

    ``function`` is "module:name" of a function that makes the inputs from its arguments (``rows``
    among them) and returns the call to measure, itself without arguments.
    """
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-m", __name__, function, json.dumps(arguments)]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if child.returncode:
        raise RuntimeError(f"measuring {function} in a new process failed: {child.stderr.strip()[-500:]}")
    return int(child.stdout.split()[-1])


def _measure(function: str, arguments: dict[str, Any]) -> int:
    module, _, name = function.partition(":")
    prepare = getattr(importlib.import_module(module), name)
    prepare(**arguments | {"rows": 2})()  # loads what a first call loads, and starts threads
    call = prepare(**arguments)
    gc.collect()
    before = _reset_peak()
    result = call()
    extra = _peak() - before
    del result
    return max(extra, 0)


def _reset_peak() -> int:
    """Forget earlier peaks, and tell the memory in use now."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _peak()
    return _status("VmRSS")


def _peak() -> int:
    if STATUS.exists():
        return _status("VmHWM")
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field + ":"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(_measure(sys.argv[1], json.loads(sys.argv[2])))

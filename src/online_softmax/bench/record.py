"""Results as data: one JSON object a line, the machine first, each workload as soon as it is done."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import online_softmax

Record = dict[str, Any]


def machine(device: str, quick: bool) -> Record:
    """The first line of a file: where, when and with what the figures below it were made."""
    import torch

    from ..commands import doctor
    from . import peers

    facts = doctor.machine()
    if device == "cuda":
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        facts |= {"GPU": properties.name, "GPU memory": f"{properties.total_memory / 2**30:.0f} GiB"}
    return {
        "record": "machine",
        "device": device,
        "quick": quick,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "online-softmax": online_softmax.__version__,
        "commit": commit(),
        "implementations": doctor.implementations(),
        "machine": facts,
        "peers": peers.versions(),
    }


def file_name(device: str) -> str:
    """The name of a file for the results of this device: cpu.jsonl, h200.jsonl, rtx_4090.jsonl."""
    if device == "cpu":
        return "cpu.jsonl"
    import torch

    words = re.findall(r"\w+", torch.cuda.get_device_name().lower())
    return "_".join(word for word in words if word not in ("nvidia", "geforce", "tesla")) + ".jsonl"


def commit() -> str:
    """The commit of the source tree in use, with "+" after it when files differ.

    The variable ONLINE_SOFTMAX_COMMIT says it where git cannot: in an export of a tree, or a copy of one into another
    checkout.  "unknown" where neither does.
    """
    told = os.environ.get("ONLINE_SOFTMAX_COMMIT")
    if told:
        return told
    folder = Path(online_softmax.__path__[0])

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True).stdout

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # an installed copy may lie inside some other repository
        changed = git("status", "--porcelain", "--untracked-files=no", ".").strip()
        return git("rev-parse", "--short=12", "HEAD").strip() + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def read(path: Path) -> list[Record]:
    """The records of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def workloads(records: Iterable[Record], **wanted: Any) -> list[Record]:
    """The records of workloads whose fields have the wanted values."""
    found = (record for record in records if record["record"] == "workload")
    return [record for record in found if all(record[key] == value for key, value in wanted.items())]


def fraction_of_copy(record: Record, library: str) -> float | None:
    """How near a library comes to a copy that moves as many bytes; None where it took no part."""
    seconds, copy = record["seconds"].get(library), record["yardsticks"].get("copy")
    return record["traffic"] / 2 * copy / seconds if seconds and copy else None

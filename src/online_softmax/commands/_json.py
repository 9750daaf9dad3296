"""Results of commands as JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any


def write_json(value: object, path: Path | None) -> None:
    """Write nested NamedTuples to a file, or print them where none is given.

    Numbers that JSON cannot hold become the strings that float() reads: "inf", "-inf", "nan".
    """
    text = json.dumps(_plain(value), indent=2, allow_nan=False)
    if path is None:
        print(text)
    else:
        path.write_text(text + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value

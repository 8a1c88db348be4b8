"""Small files that other processes read while this one writes: replaced whole, by rename.

For what can be made again. What a power cut must not take is written by store/files.py, which waits for the
disk.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import Any


def replace(file: Path, text: str) -> None:
    """Give the file this text, its folder made where there is none; a reader sees the old or the new text. Of
    two writers at once the last wins. OSError leaves the old file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_text(text)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none, or none that can be read."""
    try:
        data = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def is_locked(fd: int) -> bool:
    """Whether another process holds the file's lock; closes the descriptor."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False

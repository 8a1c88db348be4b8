"""Which files of a folder, or of a list, are traces of one job, and of which rank each is."""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from fusescope.profiling import forms

MOST = 256
"""Ranks of one profile: their files fit an exported run."""
MOST_BYTES = 64 << 30
_ENDS = (".json", ".json.gz")
_HEAD = 1 << 20
_TOLD = re.compile(rb'"distributedInfo"\s*:\s*(?=\{)')
_NAMED = (
    re.compile(r"(?<![a-z])rank[-_. ]?(\d{1,6})(?!\d)", re.IGNORECASE),
    re.compile(r"(?<![a-z])(?:worker|gpu|proc|process|r)[-_. ]?(\d{1,6})(?!\d)", re.IGNORECASE),
)


def files(path: Path) -> list[Path]:
    """The traces in a folder, or one level below it where it has none itself, by name. ValueError: none, or
    too many."""
    for pattern in ("*", "*/*"):
        found = sorted(p for p in path.glob(pattern) if _is_trace(p))
        if len(found) > MOST:
            raise ValueError(f"{path.name} holds {len(found)} traces; at most {MOST} are read as one profile")
        if found:
            return found
    raise ValueError(f"{path} holds no Chrome trace ({' or '.join(_ENDS)})")


def ranks(paths: Sequence[Path], named: bool) -> tuple[dict[int, Path], list[Path]]:
    """(rank → file, by rank; files that name no rank). The rank is that of Kineto's distributedInfo, else
    the one in the file's name or in its folder's.

    named: every file was named by the user, so that one without a rank is an error. ValueError: one
    sentence.
    """
    found: dict[int, Path] = {}
    without = []
    for path in paths:
        form = forms.detect(path)
        if form != "chrome":
            raise ValueError(f"{path.name} is no Chrome trace ({forms.FORMS[form]}): only those have ranks")
        rank = told(path)
        rank = of_name(path) if rank is None else rank
        if rank is None and named:
            raise ValueError(
                f"{path.name} names no rank: neither has it a distributedInfo, nor its name a number after "
                "“rank”"
            )
        if rank is None:
            without.append(path)
        elif rank in found:
            raise ValueError(
                f"{found[rank].name} and {path.name} are both of rank {rank}: one trace per rank makes a "
                "profile"
            )
        else:
            found[rank] = path
    if len(found) < 2:
        raise ValueError(
            f"a profile of many ranks needs two traces that name their rank, not {len(found)}; "
            "import a single trace on its own"
        )
    size = sum(p.stat().st_size for p in found.values())
    if size > MOST_BYTES:
        raise ValueError(
            f"the traces take {size >> 30} GiB; at most {MOST_BYTES >> 30} are read as one profile"
        )
    return dict(sorted(found.items())), without


def told(path: Path) -> int | None:
    """The rank in the distributedInfo before a trace's events, where there is one."""
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            head = gzip.GzipFile(fileobj=raw).read(_HEAD) if packed else raw.read(_HEAD)
    except (OSError, EOFError, zlib.error):
        return None
    m = _TOLD.search(head.partition(b'"traceEvents"')[0])
    if not m:
        return None
    try:
        info, _ = json.JSONDecoder().raw_decode(head[m.end() :].decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return sound(info)


def sound(info) -> int | None:
    """The rank of a distributedInfo as a file may have it."""
    rank = info.get("rank") if isinstance(info, dict) else None
    return rank if type(rank) is int and 0 <= rank < 1 << 20 else None


def of_name(path: Path) -> int | None:
    for text in (path.name, path.parent.name):
        for pattern in _NAMED:
            if m := pattern.search(text):
                return int(m[1])
    return None


def _is_trace(path: Path) -> bool:
    return path.name.endswith(_ENDS) and not path.name.startswith(".") and os.path.isfile(path)

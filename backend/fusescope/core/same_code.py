"""Source hashes between which a kernel's machine code stayed the same, so that a clean-up keeps its history.

``cuda/same_code.json`` holds pairs of source hashes (``Variant.source_hash``) by
``"<family>/<implementation>"``. ``scripts/same_sass.py --record`` compiled both for sm_90a and found every
instruction equal::

    {"attention/v3_hopper": [["0f3c…", "91ab…"]], …}
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from fusescope.core import paths

FILE = "same_code.json"
"""Name of the file in the folder of kernel families."""


def same(family: str, impl: str, old: str | None, new: str | None) -> bool:
    """Whether two source hashes have the same machine code; False where one is None."""
    return old is not None and new is not None and (old == new or new in lineage(family, impl, old))


def lineage(family: str, impl: str, source_hash: str) -> frozenset[str]:
    """All source hashes known to compile to the machine code of this one, itself included."""
    found = {source_hash}
    pairs = [frozenset(pair) for pair in _pairs(paths.cuda_sources()).get(f"{family}/{impl}", ())]
    while more := [pair for pair in pairs if pair & found and not pair <= found]:
        found = found.union(*more)
    return frozenset(found)


def add(folder: Path, proven: dict[tuple[str, str], tuple[str, str]]) -> int:
    """Record {(family, implementation): (old, new)} in the folder's file; how many pairs were new."""
    known = {name: [list(pair) for pair in pairs] for name, pairs in _pairs(folder).items()}
    new = 0
    for (family, impl), pair in proven.items():
        pairs = known.setdefault(f"{family}/{impl}", [])
        if pair[0] != pair[1] and list(pair) not in pairs:
            pairs.append(list(pair))
            new += 1
    lines = [f"{json.dumps(name)}: {json.dumps(pairs)}" for name, pairs in sorted(known.items()) if pairs]
    (folder / FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return new


def _pairs(folder: Path) -> dict[str, list[list[str]]]:
    file = folder / FILE
    return _read(file, file.stat().st_mtime_ns) if file.is_file() else {}


@lru_cache(maxsize=4)
def _read(file: Path, changed_ns: int) -> dict[str, list[list[str]]]:
    return json.loads(file.read_text())

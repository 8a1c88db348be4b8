"""Pages drawn over recorded runs in which one value, however deep in any of their JSON files, is another."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wrong_types
from streamlit.testing.v1 import AppTest

from fusescope.core import paths
from tests.faults.case import TryOne, folders, hold, one_sentence

TITLE = "Pages drawn over runs with one wrong value"
LEAST = 300
SHARE = 2.5
PAGES = {
    "bench": ("kernels", "runs"),
    "model": ("models", "runs"),
    "traverse": ("fusion", "runs"),
    "search": ("fusion", "runs"),
    "parallel": ("scaling", "runs"),
    "trace": ("profiler", "runs"),
    "ncu": ("profiler", "runs"),
    "selfcheck": ("runs", "app"),
}
"""Kind of run → the pages that show one."""
_LATER = 0.5  # the chance to go on into a value that holds others
_RECORDS = 4  # of a run: a wrong one is among the first
_ABSENT = object()


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    smallest = {kind: _smallest(kind) for kind in PAGES}
    kinds = sorted(kind for kind, run in smallest.items() if run)
    with folders(at) as home:

        def try_one(seed: int) -> int:
            kind = kinds[seed % len(kinds)]
            path = home / f"20260101-000000-{kind}-{seed % 1_000_000:06d}"
            shutil.copytree(smallest[kind], path)
            what = _spoil(path, random.Random(seed))
            try:
                for page in PAGES[kind]:
                    _draw(page, path.name, what)
            finally:
                shutil.rmtree(path)
            return len(PAGES[kind])

        yield try_one


def _smallest(kind: str) -> Path | None:
    """The recorded run of a kind that takes the fewest bytes."""
    found = (paths.ROOT / "profiles" / "recorded").glob(f"2*-{kind}-*")
    return min(
        found, key=lambda run: sum(f.stat().st_size for f in run.rglob("*") if f.is_file()), default=None
    )


def _draw(page: str, run_id: str, what: str) -> None:
    at = AppTest.from_file(str(paths.ROOT / "app.py"), default_timeout=100)
    if page != "app":
        at.switch_page(f"pages/{page}.py")
    at.query_params["run"] = run_id
    at.run()
    raw = [f"{e.message}: {(e.stack_trace or [''])[-1]}" for e in at.exception]
    hold(not raw, "raw", f"{page}, {what}: {raw}")
    for error in at.error:
        one_sentence(error.value)


def _spoil(path: Path, draw: random.Random) -> str:
    """Replace or take away one value in one JSON file of a run; gives which."""
    run = json.loads((path / "run.json").read_text())
    run = {k: v for k, v in run.items() if k != "contents"} | {"id": path.name, "recorded": False}
    files = [path / "results.jsonl.gz", *sorted(path.glob("artifacts/*.json")), path / "run.json"]
    file = draw.choice([f for f in files if f.is_file() and _holds_values(f)])
    if file.name == "run.json":
        what = _replace(run["spec"], draw)
    elif file.suffix == ".gz":
        lines = gzip.decompress(file.read_bytes()).decode().splitlines()
        number = draw.randrange(min(_RECORDS, len(lines)))
        data = json.loads(lines[number])
        what = _replace(data, draw)
        lines[number] = json.dumps(data)
        file.write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
    else:
        data = json.loads(file.read_text())
        what = _replace(data, draw)
        file.write_text(json.dumps(data))
    (path / "run.json").write_text(json.dumps(run))
    return f"{path.name}, {file.name}: {what}"


def _holds_values(file: Path) -> bool:
    whole = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return whole.strip() not in (b"", b"{}", b"[]", b"null")


def _replace(whole: Any, draw: random.Random) -> str:
    """Put a wrong value at a place that is drawn, or take the place away; gives which and what."""
    holder, place = whole, []
    while True:
        key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        place.append(str(key))
        inner = holder[key]
        if not (isinstance(inner, dict | list) and inner and draw.random() < _LATER):
            break
        holder = inner
    value = draw.choice((*wrong_types.VALUES, _ABSENT))
    if value is _ABSENT:
        del holder[key]
        return f"{'.'.join(place)} taken away"
    holder[key] = copy.deepcopy(value)
    return f"{'.'.join(place)} = {value!r:.40}"

"""All runs as an Arrow table, one row each.

A folder's mtime and the sizes of its results say whether a run changed: run.json and notes.json are replaced
by rename, and results grow only in live runs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.core.records import Run
from fusescope.store import folder
from fusescope.store.bounded import plain
from fusescope.store.index import disk

SETTLED_NS = 100_000_000
"""A folder changed less than this ago may change again within its clock's tick."""
RESULTS = ("results.jsonl", "results.jsonl.gz")
_SAMPLES = ("samples.jsonl", "samples.jsonl.gz")
_FILE = "runs.parquet"
_LIVE = {"queued", "running"}
_WORDS = 100_000  # characters of a run that a search looks through

_updating = threading.Lock()
_memory: dict = {}  # home → (the table, its number), for one home
_changes = itertools.count()


class Found(NamedTuple):
    """A run folder. stamp: a text that changes when the run does, and that no two looks at one that may still
    change have in common."""

    path: Path
    stamp: str


@cache
def schema():
    """The columns: ``run`` is the whole Run as JSON; ``broken`` says why a folder cannot be read."""
    import pyarrow as pa

    texts = ("id", "stamp", "kind", "status", "op", "words", "device_name", "run", "broken")
    columns = [(name, pa.string()) for name in texts]
    columns += [(name, pa.float64()) for name in ("created", "ended", "seconds")]
    columns += [("recorded", pa.bool_()), ("tags", pa.list_(pa.string()))]
    return pa.schema(columns)


def folders() -> dict[str, Found]:
    """Every run folder there is, by id. Of two with one id the one outside recorded/ counts."""
    found, now = {}, time.time_ns()
    for home in (paths.profiles() / "recorded", paths.profiles()):
        try:
            with os.scandir(home) as entries:
                for entry in entries:
                    if folder.ID.fullmatch(entry.name) and (entry.is_dir() or entry.is_symlink()):
                        with contextlib.suppress(OSError):  # it was deleted meanwhile
                            at = entry.stat(follow_symlinks=False)
                            found[entry.name] = Found(Path(entry.path), _stamp(entry.path, at, now))
        except FileNotFoundError:
            continue
        except OSError as e:
            if home == paths.profiles():  # else the one odd file hides no run but those in it
                why = f"{home} cannot be read: {e.strerror}"
                raise RunError(f"{why}; set FUSESCOPE_PROFILES to a folder") from None
    return found


def results_file(path: Path) -> Path | None:
    """A run's results file, packed or not; None where it has none that is a plain file."""
    return next((path / name for name in RESULTS if plain.is_file(path / name)), None)


def table(there: dict[str, Found] | None = None):
    """The table of the folders as they are now, or as they were in ``there``."""
    return _now(there)[0]


def state() -> int | None:
    """A number that stays for as long as no run changes; None while one is live, whose results grow."""
    known, change = _now()
    live = not _LIVE.isdisjoint(known["status"].unique().to_pylist())
    return None if live else change


def _now(there: dict[str, Found] | None = None) -> tuple:
    """(the table, which is the same one for as long as no run changes; how often it was another one)."""
    import pyarrow as pa

    with _updating:
        there, home = folders() if there is None else there, str(paths.profiles())
        where = disk.place()
        known, change = _memory.get(home, (None, None))
        if known is None:
            known = disk.read(where / _FILE, schema()) if where else schema().empty_table()
            change = next(_changes)
        old = {
            run_id: (row, stamp)
            for row, (run_id, stamp, status) in enumerate(
                zip(*(known[name].to_pylist() for name in ("id", "stamp", "status")))
            )
            if status not in _LIVE
        }
        keep, fresh = [], []
        for run_id, found in there.items():
            row, stamp = old.get(run_id, (None, None))
            if stamp == found.stamp:
                keep.append(row)
            else:
                fresh.append(_row(found))
        if fresh or len(keep) != known.num_rows:
            kept = known.take(pa.array(keep, pa.int64()))
            known = pa.concat_tables([kept, pa.Table.from_pylist(fresh, schema())]).combine_chunks()
            change = next(_changes)
            if where:
                disk.replace(where / _FILE, disk.write_table(known))
        elif where and not (where / _FILE).is_file():
            disk.replace(where / _FILE, disk.write_table(known))
        _memory.clear()
        _memory[home] = known, change
        return known, change


def _stamp(path: str, stat: os.stat_result, now: int) -> str:
    if now - stat.st_mtime_ns < SETTLED_NS:
        return f"{stat.st_mtime_ns} at {now}"
    return f"{stat.st_mtime_ns} {_size(path, RESULTS)} {_size(path, _SAMPLES)}"


def _size(path: str, names: tuple[str, ...]) -> int:
    for name in names:
        try:
            return os.stat(f"{path}/{name}").st_size
        except OSError:
            continue
    return -1


def _row(found: Found) -> dict:
    path, recorded = found.path, folder.is_recorded(found.path)
    try:
        run = folder.read(path)
    except (RunError, OSError) as e:
        return {
            "id": path.name,
            "stamp": found.stamp,
            "recorded": recorded,
            "broken": str(e)
            .replace(f"{path}/", "")
            .replace(str(path), "it")
            .encode(errors="replace")
            .decode(),
            "words": path.name,
        }
    return {
        "id": path.name,
        "stamp": found.stamp,
        "created": run.created,
        "ended": run.ended,
        "seconds": run.finished - run.started if run.finished and run.started else None,
        "kind": run.kind,
        "status": run.status,
        "op": run.spec.get("op") or None,
        "recorded": recorded,
        "tags": list(run.tags),
        "words": _words(run),
        "device_name": run.device_name,
        "run": json.dumps(vars(run) | {"progress": vars(run.progress)}),  # to_json copies deeply: slow
    }


def _words(run: Run) -> str:
    """What a search looks through, a line each, so that no phrase goes from one into the next: names, notes,
    device, settings, and the values of the cases, with how many masks there are. Sequences of unequal length
    are "varlen", whatever the parameter says of them."""
    cases = [dict(case) for case in run.spec.get("cases") or ()]
    text = [run.id, run.title, run.notes, *run.tags, run.status, run.reason or "", run.device_name, run.kind]
    text += [str(run.spec.get(k, "")) for k in ("op", "model", "impl", "impls", "mask", "dtype", "device")]
    text += dict.fromkeys(f"{key}={value}" for case in cases for key, value in case.items())
    if any(case.get("lengths") not in (None, "fixed", "full") for case in cases):
        text.append("varlen")
    if len(masks := {str(case["mask"]) for case in cases if case.get("mask")}) > 1:
        text.append(f"{len(masks)} masks")
    return "\n".join(" ".join(part.split()) for part in text)[:_WORDS].lower()

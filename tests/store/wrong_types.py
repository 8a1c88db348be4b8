"""Runs with one value of a wrong type each, generated from the schemas: every field × every wrong type."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from make_runs import make, record

from fusescope.core.records import Record, Run
from fusescope.core.schema.extra import Extra
from fusescope.core.schema.run_files import NOTES, SPEC, Samples
from fusescope.core.schema.typed import fields

VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**30,
    1e308,
    float("nan"),
    float("inf"),
    "text",
    "\ud800",
    "\x1b]52;c;eA==\x07",
    [],
    [None],
    ["a", 1],
    {},
    {"a": {"b": []}},
)
"""What JSON can say, and what none of our writers does."""

RUN = {
    "schema": 1,
    "id": "20260101-000000-bench-000000",
    "kind": "bench",
    "spec": {"op": "add", "impls": ["eager"], "cases": [{"n": 1}], "baseline": "eager", "device": "cpu"},
    "status": "done",
    "reason": None,
    "created": 1.7e9,
    "started": 1.7e9,
    "finished": 1.7e9 + 1,
    "progress": {"done": 1, "total": 1, "message": "", "eta_s": None, "updated": 1.7e9},
    "environment": {"device_name": "a device"},
    "contents": {"results.jsonl": {"lines": 1, "bytes": 1, "crc32": 1}},
}
NOTE = {"title": "a title", "tags": ["a"], "notes": ""}
LINE = {"case_key": "x", "impl": "y", "mode": "graph", "ms": [1.0], "state": None}


def paths(cls: type, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The place of every field of a dataclass, nested ones after their parent."""
    for name, field in fields(cls).items():
        yield (*at, name)
        if field.nested:
            yield from paths(field.nested, (*at, name))


def variants(whole: dict, places: list[tuple[str, ...]]) -> Iterator[tuple[str, dict]]:
    """(what is wrong, the object with that) for every place and value, and without the place's key."""
    for place in places:
        for value in (*VALUES, "absent"):
            data = copy.deepcopy(whole)
            holder = data
            for key in place[:-1]:
                if not isinstance(holder.get(key), dict):
                    holder[key] = {}  # a part that the example lacks
                holder = holder[key]
            if value == "absent":
                holder.pop(place[-1], None)
            else:
                holder[place[-1]] = value
            yield f"{'.'.join(place)} = {value!r:.40}", data


def runs() -> Iterator[tuple[str, dict]]:
    """run.json with one wrong value."""
    further = [("spec", p.name) for p in SPEC] + [("environment", "device_name"), ("environment", "ceilings")]
    noted = [("contents",), ("contents", "results.jsonl"), ("contents", "results.jsonl", "bytes")]
    yield from variants(RUN, [*paths(Run), *further, *noted])


def notes() -> Iterator[tuple[str, dict]]:
    """notes.json with one wrong value."""
    yield from variants(NOTE, [(p.name,) for p in NOTES])


def records() -> Iterator[tuple[str, dict]]:
    """A record with one wrong value."""
    yield from variants(record("add", 1, "eager"), [*paths(Record), *paths(Extra, ("extra",))])


def samples() -> Iterator[tuple[str, dict]]:
    """A line of raw samples with one wrong value."""
    yield from variants(LINE, list(paths(Samples)))


def write(home: Path) -> dict[str, str]:
    """A folder with three sound runs, and one run for each wrong value: id → what is wrong with it."""
    make(home, 3, 4)
    wrong = {}

    def folder(kind: str, what: str) -> Path:
        run_id = f"20260101-{len(wrong):06d}-{kind}-000000"
        wrong[run_id] = what
        (home / run_id).mkdir()
        return home / run_id

    def sound(path: Path) -> None:
        run = {k: v for k, v in RUN.items() if k != "contents"}
        (path / "run.json").write_text(json.dumps(run | {"id": path.name}))

    for what, data in runs():
        (folder("bench", what) / "run.json").write_text(json.dumps(data))
    for name, found in (("notes.json", notes()), ("results.jsonl", records()), ("samples.jsonl", samples())):
        for what, data in found:
            path = folder("bench", f"{name}: {what}")
            sound(path)
            (path / name).write_text(json.dumps(data) + "\n")
    folder("bench", "no run.json")
    (folder("bench", "run.json is a folder") / "run.json").mkdir()
    (folder("bench", "deep") / "run.json").write_text('{"schema": 1, "spec": ' + "[" * 900 + "]" * 900 + "}")
    (folder("bench", "digits") / "run.json").write_text('{"schema": 1, "created": ' + "9" * 5000 + "}")
    (folder("bench", "UTF-16") / "run.json").write_bytes(json.dumps(RUN).encode("utf-16"))
    return wrong

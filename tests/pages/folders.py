"""Run folders on disk made from synthetic records: what pages read when no job has run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import synthetic

from fusescope.core.records import Record, Run


def write(home: Path, run: Run, records: list[Record], samples: bool = True, log: str = "") -> Path:
    """A run folder as a worker leaves it."""
    return _put(home / run.id, _texts(run, records, samples, log))


def _texts(run: Run, records: list[Record], samples: bool, log: str) -> dict[str, str]:
    """The files of a run folder: name → text."""
    data = {k: v for k, v in run.to_json().items() if k not in ("title", "tags", "notes", "recorded")}
    texts = {
        "run.json": json.dumps(data),
        "notes.json": json.dumps({"title": run.title, "tags": list(run.tags), "notes": run.notes}),
        "results.jsonl": _lines(r.to_json() for r in records),
        "log.txt": log,
    }
    return texts | ({"samples.jsonl": _lines(synthetic.samples(records, 60))} if samples else {})


def _lines(rows: Iterable[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _put(path: Path, texts: dict[str, str]) -> Path:
    (path / "artifacts").mkdir(parents=True)
    for name, text in texts.items():
        (path / name).write_text(text)
    return path


def few(home: Path) -> dict[str, Run]:
    """A recorded sweep, a point of this machine, a failed run and a build."""
    for name, (run, texts) in _few().items():
        _put((home / "recorded" if name == "recorded" else home) / run.id, texts)
    return {name: run for name, (run, _) in _few().items()}


@cache
def _few() -> dict[str, tuple[Run, dict[str, str]]]:
    """Made once a process: their samples take longer than most drawings."""
    recorded = synthetic.run(
        "20261101-120000-bench-0000aa",
        spec=synthetic.SPEC | {"cases": [synthetic.case(n) for n in (512, 1024, 2048, 4096)]},
    )
    point = synthetic.run("20261120-104200-bench-abc123", title="rowwise, first try", tags=("night",))
    failed = synthetic.run(
        "20261120-110000-bench-dead01", status="failed", reason="the worker was killed by signal 9"
    )
    build = synthetic.run(
        "20261120-090000-build-b00001", kind="build", spec={"archs": ["sm_90a"], "clean": False}
    )
    return {
        "recorded": (recorded, _texts(recorded, synthetic.sweep(), True, "")),
        "point": (point, _texts(point, synthetic.point(), True, "")),
        "failed": (failed, _texts(failed, synthetic.point()[:2], True, "")),
        "build": (build, _texts(build, [], False, "[1/2] compiling\n[2/2] linking\n")),
    }

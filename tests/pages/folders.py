"""Run folders on disk made from synthetic records: what pages read when no job has run."""

from __future__ import annotations

import json
from pathlib import Path

import synthetic

from fusescope.core.records import Record, Run


def write(home: Path, run: Run, records: list[Record], samples: bool = True, log: str = "") -> Path:
    """A run folder as a worker leaves it."""
    path = home / run.id
    (path / "artifacts").mkdir(parents=True)
    data = {k: v for k, v in run.to_json().items() if k not in ("title", "tags", "notes", "recorded")}
    (path / "run.json").write_text(json.dumps(data))
    (path / "notes.json").write_text(
        json.dumps({"title": run.title, "tags": list(run.tags), "notes": run.notes})
    )
    (path / "results.jsonl").write_text("".join(json.dumps(r.to_json()) + "\n" for r in records))
    if samples:
        (path / "samples.jsonl").write_text(
            "".join(json.dumps(s) + "\n" for s in synthetic.samples(records, 60))
        )
    (path / "log.txt").write_text(log)
    return path


def few(home: Path) -> dict[str, Run]:
    """A recorded sweep, a point of this machine, a failed run and a build."""
    found = {
        "recorded": synthetic.run(
            "20261101-120000-bench-0000aa",
            spec=synthetic.SPEC | {"cases": [synthetic.case(n) for n in (512, 1024, 2048, 4096)]},
        ),
        "point": synthetic.run("20261120-104200-bench-abc123", title="rowwise, first try", tags=("night",)),
        "failed": synthetic.run(
            "20261120-110000-bench-dead01", status="failed", reason="the worker was killed by signal 9"
        ),
        "build": synthetic.run(
            "20261120-090000-build-b00001", kind="build", spec={"archs": ["sm_90a"], "clean": False}
        ),
    }
    write(home / "recorded", found["recorded"], synthetic.sweep())
    write(home, found["point"], synthetic.point())
    write(home, found["failed"], synthetic.point()[:2])
    write(home, found["build"], [], samples=False, log="[1/2] compiling\n[2/2] linking\n")
    return found

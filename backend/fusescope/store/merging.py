"""Several runs of one comparison made one: what was measured in pieces is shown and read as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fusescope.core.errors import RunError
from fusescope.core.records import Record, Run
from fusescope.store import folder

_SAME = ("device_name", "driver", "torch", "torch_cuda", "nvcc", "git_commit", "sources")
"""Facts of the environment that all pieces share: else their records do not belong into one table."""


def merge(paths: Sequence[Path], title: str = "") -> Path:
    """A new run, done, of every case that the runs measured with all implementations, in their order.

    The runs are comparisons ("bench" or "model") that differ in their cases alone, on one kind of device, of
    one commit. A case that a run was stopped in, also in one of several processes, is left out; of a case
    measured twice the later one counts.
    environment["pieces"] says of each run its GPU, times, ceilings and number of cases, which follow each
    other; created, started and finished are those of the pieces.

    RunError where the runs do not belong together, or no case is complete.
    """
    runs = [folder.read(path) for path in paths]
    if not runs:
        raise RunError("there is no run to merge")
    for run in runs[1:]:
        _check(runs[0], run)
    owner = _owners(paths, runs[0])
    if not owner:
        raise RunError(f"no case of {', '.join(r.id for r in runs)} has a record of each implementation")
    kept = {path: [r for r in folder.records(path) if owner.get(r.case_key) == path] for path in paths}
    cases = {r.case_key: dict(r.case) for records in kept.values() for r in records}
    facts = dict(runs[0].environment)
    if len({run.environment.get("device_uuid") for run in runs}) > 1:
        facts["device_uuid"] = None
    facts["pieces"] = [_about(run, kept[path]) for run, path in zip(runs, paths)]
    spec = {**runs[0].spec, "cases": list(cases.values())}
    writer = folder.Writer(folder.create(runs[0].kind, spec, title or runs[0].title))
    try:
        writer.state("running")
        writer.environment(**facts)
        for path, records in kept.items():
            for record in records:
                writer.record(record)
            for line in folder.samples(path):
                if owner.get(line["case_key"]) == path:
                    writer.samples(*(line[name] for name in ("case_key", "impl", "mode", "ms", "state")))
        writer.progress(len(cases), len(cases), f"merged from {len(runs)} run{'' if len(runs) == 1 else 's'}")
        writer.state("done", times=_times(runs))
    finally:
        writer.close()
    return writer.path


def _check(first: Run, other: Run) -> None:
    """RunError where two runs are not pieces of one comparison."""
    if first.kind not in ("bench", "model") or other.kind != first.kind:
        raise RunError(f"{first.id} and {other.id} are not two comparisons of one kind")
    keys = (first.spec.keys() | other.spec.keys()) - {"cases"}
    differ = [k for k in sorted(keys) if first.spec.get(k) != other.spec.get(k)]
    differ += [k for k in _SAME if first.environment.get(k) != other.environment.get(k)]
    if differ:
        raise RunError(f"{first.id} and {other.id} cannot be merged: they differ in {', '.join(differ)}")


def _owners(paths: Sequence[Path], first: Run) -> dict[str, Path]:
    """{case key: the run whose records of it count}, complete cases alone: of every implementation in as many
    processes as were asked for."""
    processes = first.spec.get("processes", 1)
    wanted = {*first.spec.get("impls", ()), *filter(None, [first.spec.get("baseline")])}
    owner: dict[str, Path] = {}
    for path in paths:
        measured: dict[str, set[str]] = {}
        for record in folder.records(path):
            if record.speedup is None or record.speedup.processes >= processes:
                measured.setdefault(record.case_key, set()).add(record.impl)
        owner |= {key: path for key, impls in measured.items() if impls >= wanted}
    return owner


def _about(run: Run, records: Sequence[Record]) -> dict[str, Any]:
    """What environment["pieces"] says of a run."""
    facts = {key: run.environment.get(key) for key in ("device_uuid", "others_on_gpu", "ceilings")}
    cases = len({r.case_key for r in records})
    return {"run": run.id, "started": run.started, "finished": run.finished, "cases": cases} | facts


def _times(runs: Sequence[Run]) -> dict[str, float]:
    """When the pieces were created, started and finished."""
    found = {
        "created": min(filter(None, (r.created for r in runs)), default=None),
        "started": min(filter(None, (r.started for r in runs)), default=None),
        "finished": max(filter(None, (r.finished for r in runs)), default=None),
    }
    return {name: value for name, value in found.items() if value is not None}

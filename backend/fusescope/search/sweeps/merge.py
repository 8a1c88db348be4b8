"""Merge the parts of a sweep that several GPUs measured at one time: one run, which says where each scheme
was measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from fusescope.core.errors import RunError
from fusescope.core.records import Record, Run
from fusescope.search import encoding, sessions
from fusescope.search.scheme.setting import OP, SEGMENT, of_spec
from fusescope.search.sweeps import exhaustive


def merge(paths: Sequence[Path], title: str = "") -> Path:
    """A new run of all records of these runs of one setting, with the request of the last: done where no
    scheme of that is left, else interrupted. Runs that hold no record (they failed before) count for nothing;
    those that these go on after stay named if they are here.

    A scheme's record says in extra["sitting"] in which run it was measured, with that run's own unfused
    layer; environment ["sittings"] says of each run its device, commit, times, schemes, and the milliseconds
    of its baselines, which show whether the devices differ. Of several records of a baseline the one of the
    median time is kept, of a segment the first that is ok. ValueError where the runs are not of one setting
    and one kind of device.
    """
    from fusescope.store import folder

    all_records = {path: folder.records(path) for path in paths}
    paths = [path for path in paths if all_records[path]]
    runs = [folder.read(path) for path in paths]
    _check(runs)
    records = {run.id: all_records[path] for run, path in zip(runs, paths)}
    kept = _kept(records)
    named = dict.fromkeys(i for run in runs for i in sessions.ids(run.spec.get("after")))
    further = [i for i in named if i not in records and _is_here(i)]
    spec = {**runs[-1].spec, "part": None, "after": ",".join(further) or None}
    spec.pop("deadline_s", None)
    wanted = exhaustive.codes(spec["ranges"], spec["limit"], spec["seed"])
    there = sessions.settled(r for _, r in kept) | sessions.earlier(spec["after"], runs[0].device_name)
    left = sum(code not in there for code in wanted)
    writer = folder.Writer(folder.create("traverse", spec, title))
    try:
        writer.state("running")
        writer.environment(**_environment(runs, records))
        for _, record in kept:
            writer.record(record)
        origin = {(record.case_key, record.impl): run_id for run_id, record in kept}
        for run, path in zip(runs, paths):
            for line in folder.samples(path):
                if origin.get((line["case_key"], line["impl"])) == run.id:
                    writer.samples(*(line[name] for name in ("case_key", "impl", "mode", "ms", "state")))
        writer.progress(len(wanted) - left, len(wanted), f"merged from {len(runs)} runs")
        writer.flush_progress(now=True)
        if left:
            writer.state("interrupted", f"{left} of {len(wanted)} schemes are left for another session")
        else:
            writer.state("done")
    finally:
        writer.close()
    return writer.path


def _check(runs: list[Run]) -> None:
    if not runs:
        raise ValueError("none of the runs holds a record: there is nothing to merge")
    last = runs[-1]
    for run in runs:
        if (
            run.kind != "traverse"
            or of_spec(run.spec) != of_spec(last.spec)
            or run.device_name != last.device_name
        ):
            raise ValueError(f"{run.id} and {last.id} are not sweeps of one setting on one kind of device")


def _is_here(run_id: str) -> bool:
    from fusescope.store import library

    try:
        return bool(library.find(run_id))
    except RunError:
        return False


def _kept(records: dict[str, list[Record]]) -> list[tuple[str, Record]]:
    """(id of its run, record), one a baseline, segment and scheme; the schemes in the order of the runs."""
    several: dict[tuple[str, str], list[tuple[str, Record]]] = {}
    for run_id, some in records.items():
        for r in some:
            several.setdefault((r.case_key, r.impl), []).append((run_id, r))
    return [_one(found) for found in several.values()]


def _one(found: list[tuple[str, Record]]) -> tuple[str, Record]:
    good = sorted((f for f in found if f[1].status == "ok"), key=lambda f: f[1].ms)
    if found[0][1].op == SEGMENT:
        run_id, record = next((f for f in found if f[1].status == "ok"), found[0])
    else:
        run_id, record = good[len(good) // 2] if good else found[0]
    return run_id, dataclasses.replace(record, extra=record.extra or {"sitting": run_id})


def _environment(runs: list[Run], records: dict[str, list[Record]]) -> dict:
    """The last run's; device_uuid only where all have the same. Of runs that were merged before, their own
    sessions."""
    facts = dict(runs[-1].environment)
    if len({run.environment.get("device_uuid") for run in runs}) > 1:
        facts["device_uuid"] = None
    said = []
    for run in runs:
        if run.environment.get("sittings"):
            said += run.environment["sittings"]
            continue
        layers = [r for r in records[run.id] if r.op == OP]
        about = {key: run.environment.get(key) for key in ("device_uuid", "git_commit", "others_on_gpu")}
        plain = {r.impl: r.ms for r in layers if not encoding.is_code(r.impl) and r.status == "ok"}
        schemes = sum(encoding.is_code(r.impl) for r in layers)
        said.append(
            {"run": run.id, "started": run.started, "finished": run.finished, "status": run.status}
            | about
            | {"schemes": schemes, "baselines_ms": plain}
        )
    return facts | {"sittings": said}

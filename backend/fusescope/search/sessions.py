"""An exhaustive sweep in several sessions: a run that goes on after others measures what they left, and all
together are one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fusescope.core.errors import RunError
from fusescope.core.records import Record
from fusescope.core.schema.typed import build, plain
from fusescope.search.learning import pairs
from fusescope.search.learning.found import NAME, Found
from fusescope.search.scheme.setting import OP, Setting, of_spec


def ids(after: str | None) -> list[str]:
    """The run ids in a spec's ``after``, which has commas between them."""
    return [part.strip() for part in (after or "").split(",") if part.strip()]


def check(after: str, setting: Setting) -> str:
    """The ids, if all are sweeps of this setting. RunError for no such run, ValueError for one of
    something else."""
    from fusescope.store import folder, library

    for run_id in ids(after):
        run = folder.read(library.find(run_id))
        if run.kind != "traverse" or (found := of_spec(run.spec)) != setting:
            what = f"a sweep of {found}" if run.kind == "traverse" else f"a {run.kind}"
            raise ValueError(
                f"a sweep of {setting} goes on after one of the same, not after {run.id}, {what}"
            )
    return ",".join(ids(after))


def earlier(after: str | None, device_name: str | None) -> set[str]:
    """The codes and baselines that are ``settled`` in these runs and those that they go on after.

    RunError for no such run, ValueError for one of another kind of device: times of one are compared.
    """
    from fusescope.store import folder, library

    found: set[str] = set()
    for run_id in ids(after):
        run = folder.read(library.find(run_id))
        if run.device_name != device_name:
            where = f"{run.id} was measured on {run.device_name}, here is {device_name}"
            raise ValueError(f"{where}; times of one device are compared")
        found |= settled(records(run_id))
    return found


def settled(records: Iterable[Record]) -> set[str]:
    """The codes and baselines that no further session has to measure: those that have a record, unless it is
    out of memory, which another process may have caused."""
    return {r.impl for r in records if r.op == OP and r.status != "oom"}


def machines(about: Iterable[Mapping], records: Iterable[Record]) -> list[list[Record]]:
    """The records by the machine that measured them, the most first. ``about``: environment["sittings"] of a
    merged run; without, all are of one machine. Sessions that overlap in time count as GPUs of one machine.

    torch.compile chooses among its kernels by measuring, once per machine: recorded times of a layer differ
    by up to 8 %, so schemes are compared, and learned from, within one machine.
    """
    place: dict[str, int] = {}
    number, until = 0, float("-inf")
    for session in sorted(about, key=lambda s: s["started"]):
        number += session["started"] > until
        until = max(until, session["finished"])
        place[session["run"]] = number
    found: dict[int, list[Record]] = {}
    for r in records:
        found.setdefault(place.get((r.extra or {}).get("sitting"), 0), []).append(r)
    return sorted(found.values(), key=len, reverse=True)


def times(run_ids: str) -> tuple[dict[str, float], Setting]:
    """({code: ms}, setting) of a recorded sweep or search, or of several sessions of one: ids with commas
    between.

    RunError for no such run, ValueError where one holds no scheme's time, or where they are of several
    settings or devices.
    """
    from fusescope.store import folder, library

    several, devices, setting = [], set(), None
    for run_id in ids(run_ids):
        path = library.find(run_id)
        some, run = records(path.name), folder.read(path)
        if not pairs.of_records(some):
            raise ValueError(f"{run.id} holds no time of a scheme; a search is replayed on a sweep")
        several += some
        devices.add(run.device_name)
        setting = of_spec(run.spec)
    if len(devices) > 1:
        names = ", ".join(sorted(devices))
        raise ValueError(
            f"the runs are of {len(devices)} kinds of device ({names}); times of one are compared"
        )
    return pairs.of_records(several), setting


def records(run_id: str) -> list[Record]:
    """The records of a run and, before them, of the runs that it goes on after, as far as they are still
    here; of a code that several have, the last. RunError where the run itself is not here."""
    from fusescope.store import folder, library

    path = library.find(run_id)
    if not ids(folder.read(path).spec.get("after")):
        return folder.records(path)
    found: dict[tuple[str, str, str], Record] = {}

    def add(one: str, seen: frozenset[str]) -> None:
        path = library.find(one)
        for before in ids(folder.read(path).spec.get("after")):
            if before not in seen:
                try:
                    add(before, seen | {before})
                except RunError:
                    continue  # it was deleted; what is here still holds
        found.update({(r.case_key, r.op, r.impl): r for r in folder.records(path)})

    add(run_id, frozenset({run_id}))
    return list(found.values())


def found(run_id: str) -> dict[str, Any] | None:
    """The JSON values of Found that a search has left so far, None where nothing yet. RunError for no such
    run, and where the file is damaged or holds something else."""
    from fusescope.store import files, library

    file = library.find(run_id) / "artifacts" / NAME
    if not file.is_file():
        return None
    try:
        return plain(build(Found, files.read_json(file)))
    except ValueError as error:
        raise RunError(f"{file} is not what a search leaves: {error}") from None

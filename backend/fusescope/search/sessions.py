"""A traverse in several sittings: a run that goes on after others holds what they left to be measured, and
all together are one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusescope.core.errors import RunError
from fusescope.core.records import Record
from fusescope.search.scheme.setting import OP, Setting, of_spec


def ids(after: str | None) -> list[str]:
    """The run ids in a spec's ``after``, which has commas between them."""
    return [part.strip() for part in (after or "").split(",") if part.strip()]


def check(after: str, setting: Setting) -> str:
    """The ids, if all are traverses of this setting. RunError for no such run, ValueError for one of
    something else."""
    from fusescope.store import folder, library

    for run_id in ids(after):
        run = folder.read(library.find(run_id))
        if run.kind != "traverse" or (found := of_spec(run.spec)) != setting:
            what = f"a traverse of {found}" if run.kind == "traverse" else f"a {run.kind}"
            raise ValueError(
                f"a traverse of {setting} goes on after one of the same, not after {run.id}, {what}"
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
            raise ValueError(
                f"{run.id} was measured on {run.device_name}, here is {device_name}; times of one device are compared"
            )
        found |= settled(records(run_id))
    return found


def settled(records: Iterable[Record]) -> set[str]:
    """The codes and baselines that no further sitting has to measure: those that have a record, but for what
    found no memory, which may have been another process's or the run's own doing."""
    return {r.impl for r in records if r.op == OP and r.status != "oom"}


def boxes(about: Iterable[Mapping], records: Iterable[Record]) -> list[list[Record]]:
    """The records by the box that measured them, the most first. ``about``: environment["sittings"] of a
    joined run; without, all are of one box. Sittings that overlap in time are taken for those of one box's
    GPUs.

    Of one segment torch.compile makes other kernels on another box, since it chooses among them by measuring
    once a box: recorded times differ by up to 8 % of the layer, so schemes are compared, and learned from,
    within one.
    """
    place: dict[str, int] = {}
    number, until = 0, float("-inf")
    for sitting in sorted(about, key=lambda s: s["started"]):
        number += sitting["started"] > until
        until = max(until, sitting["finished"])
        place[sitting["run"]] = number
    found: dict[int, list[Record]] = {}
    for r in records:
        found.setdefault(place.get((r.extra or {}).get("sitting"), 0), []).append(r)
    return sorted(found.values(), key=len, reverse=True)


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

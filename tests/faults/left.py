"""What a run has in the end, beside what it has when nobody disturbs it."""

from __future__ import annotations

from fusescope.core.records import Run
from fusescope.search.scheme.setting import SEGMENT
from fusescope.store import folder, library, profile
from tests.faults.case import hold

Left = dict[tuple[str, str], str]
"""(case_key, impl) → whether a record was booked for a body that died ("crashed") or told by one; of an
import, (table, "rows") → how many. Whether a time was taken is another matter: on a busy machine the alarm
refuses some."""
_BOOKED = ("crashed", "timeout")


def of(run_id: str, kind: str) -> Left:
    path = library.find(run_id)
    found = folder.records(path)
    left = {(r.case_key, r.impl): "crashed" if r.status in _BOOKED else "told" for r in found}
    hold(len(left) == len(found), "state", f"{run_id}: a measurement is there twice")
    if kind == "import":
        left[("kernels", "rows")] = str(len(profile.table(path, "kernels")))
    return left


def finished(run: Run) -> bool:
    """Whether a job has ended as it does when nobody disturbs it; a search on a busy machine may find that it
    could time no scheme."""
    return run.status == "done" or (run.status == "failed" and "no scheme could be measured" in run.reason)


def compare(what: str, there: Left, whole: Left, crashes: int, same: bool) -> None:
    """Nothing is missing, and what is other than undisturbed is a crash: of the case in whose hand a body was
    killed, or of a segment, and then of the schemes that it is part of.

    crashes: how many bodies were killed; 0: all is as undisturbed. same: which cases there are is fixed.
    """
    if same:
        hold(
            not whole.keys() - there.keys(), "lost", f"{what}: missing {sorted(whole.keys() - there.keys())}"
        )
    other = {
        key: status for key, status in there.items() if whole.get(key, None if same else "told") != status
    }
    if not crashes:
        hold(not other, "state", f"{what}: other than undisturbed: {other}")
        return
    hold(set(other.values()) <= {"crashed"}, "state", f"{what}: other than undisturbed: {other}")
    segments = [key for key in other if f'"{SEGMENT}"' in key[0]]
    further = [key for key in other if same and key not in whole and key not in segments]
    hold(not further, "state", f"{what}: nobody asked for {further}")
    hold(
        segments or len(other) <= crashes, "state", f"{what}: {crashes} killed, {len(other)} crashes: {other}"
    )

"""The edit loop: a kernel's source changed on disk since the run; one click rebuilds, re-runs and
compares."""

from __future__ import annotations

import streamlit as st

from fusescope import ops
from fusescope.charts import captions, tables
from fusescope.charts.bench import edits
from fusescope.charts.bench.history import Edit
from fusescope.charts.colours import kind, short
from fusescope.core import same_code
from fusescope.core.records import Record, Run, case_key
from fusescope.jobs import submit
from fusescope.store import library
from pages._ui.app import device, redraw, run_data, trust
from pages._ui.widgets import elements, style


def changed(run: Run, records: list[Record]) -> list[str]:
    """Implementations whose source on disk compiles to other machine code than the one measured (or wrong, or
    failed), in the run's order."""
    measured = {r.impl: r.source_hash for r in records if r.source_hash and r.status != "unsupported"}
    found = []
    for impl, old in measured.items():
        try:
            now = ops.describe(str(run.spec["op"]), impl, str(run.spec.get("device"))).source_hash
        except ValueError:
            continue  # the file is gone: nothing to run again
        if now and not same_code.same(str(run.spec["op"]), impl, old, now):
            found.append(impl)
    return found


def banner(run: Run) -> None:
    """Say that a source changed, as soon as it is saved, with the button; for runs of this machine's
    devices."""
    if not (run.live or run.recorded) and run.spec.get("device") in device.devices():
        _watch(run.id)


@st.fragment(run_every=2.0)
def _watch(run_id: str) -> None:
    if st.session_state.get("kernels/run_id") not in (None, run_id):
        redraw.whole_page()  # the button below started the next run
        return
    run, records = run_data.read(run_id), run_data.records(run_id)
    names = changed(run, records)
    if not names:
        return
    clock = captions.date(run.finished or run.started).rpartition(" ")[2]
    left, right = st.columns([3, 1], vertical_alignment="center")
    left.info(f"**{', '.join(map(short, names))}** changed on disk since this run ({clock}).")
    with right:
        trust.button(
            "Rebuild and re-run",
            "edit/rerun",
            run,
            run.spec,
            _again,
            (run.id,),
            type="primary",
            width="stretch",
        )


def _again(run_id: str) -> None:
    """Measure the same cases again; the job builds what changed before it measures."""
    old = run_data.read(run_id)
    new = submit.submit("bench", {k: v for k, v in old.spec.items() if k != "deadline_s"})
    st.session_state["kernels/run_id"] = new
    st.session_state["kernels/before"] = run_id


def comparison(run: Run, records: list[Record], before: str) -> None:
    """New against old for every kernel whose source differs between the two runs."""
    old_run, old = run_data.read(before), run_data.records(before)
    pairs = {(r.impl, r.case_key): r for r in old}
    moved = [
        r
        for r in records
        if (r.impl, r.case_key) in pairs and r.source_hash != pairs[r.impl, r.case_key].source_hash
    ]
    if not moved:
        if not run.live:
            st.caption(f"All sources are the same as in the run of {captions.date(old_run.finished)}.")
        return
    for group, rows in tables.cases(moved).items():
        for r in rows:
            subtitle = captions.context(run) + (f" · {group}" if group != "the case" else "")
            fig = edits.bars([r], [pairs[r.impl, r.case_key]], old_run, r.impl, subtitle, style.theme())
            fig.update_layout(
                title_text=f"<b>{short(r.impl)}: after vs before the edit</b><br>"
                f"<span style='font-size:12px'>{subtitle}</span>"
            )
            elements.chart(
                fig, f"{run.id}-edit-{short(r.impl)}-{group}", tables.tidy([r, pairs[r.impl, r.case_key]])
            )
    elements.note("The two runs were not interleaved; the interval is the widest that both intervals allow.")


def earlier(run: Run, record: Record) -> list[Edit]:
    """Every record of the same kernel, case, dtype and device model in all runs here, this one included."""
    if kind(record.impl) == "peer":
        return []
    found = []
    for other in _benches(record.op):
        same = other.device_name == run.device_name and other.spec.get("dtype") == record.dtype
        if not same or record.impl not in (other.spec.get("impls") or ()):
            continue
        wanted = case_key(record.op, record.case, record.dtype, str(other.spec.get("device")))
        found += [
            Edit(other, r)
            for r in run_data.records(other.id)
            if r.impl == record.impl and r.case_key == wanted
        ]
    return found


@st.cache_data(ttl=3, show_spinner=False)
def _benches(op: str) -> list[Run]:
    found, _ = library.runs(kind="bench", op=op, limit=200)
    return found

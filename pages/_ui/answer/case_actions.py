"""Actions on one case of a run: collect a Chrome trace, or run compute-sanitizer."""

from __future__ import annotations

import streamlit as st

from fusescope.charts import captions, numbers
from fusescope.charts.colours import kind, short
from fusescope.core.records import Record, Run
from fusescope.jobs import submit
from fusescope.store import library
from pages._ui.app import device, jobs, run_data, trust, url
from pages._ui.routes import downloads
from pages._ui.widgets.text import md, reason_text, status_text

_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def draw(run: Run, case: list[Record]) -> None:
    """Implementation → trace and sanitizer jobs on exactly this case, and the files they left."""
    here = str(run.spec.get("device")) in device.devices() and not run.recorded
    where = str(run.spec.get("device")) if here else device.current()
    impl = st.selectbox("implementation", [r.impl for r in case], format_func=short, key="extras/impl")
    record = next(r for r in case if r.impl == impl)
    spec = {"op": record.op, "impl": impl, "case": dict(record.case), "dtype": record.dtype, "device": where}
    st.caption(f"{captions.case(record)} · {record.dtype} on {where}" + ("" if here else " (this machine)"))
    left, right = st.columns(2)
    with left:
        trust.button(
            "Collect Chrome trace",
            "extras/trace",
            run,
            spec,
            _submit,
            ("trace", spec),
            width="stretch",
            help="Five calls under torch.profiler in a separate process; profiled times are not latencies",
        )
        reports(spec, "trace")
    with right:
        reason = _why_not(record, where)
        tool = st.session_state.get("extras/tool") or _TOOLS[0]
        trust.button(
            "Run compute-sanitizer",
            "extras/sanitize",
            run,
            spec,
            _submit,
            ("sanitize", spec | {"tool": tool}),
            width="stretch",
            disabled=reason is not None,
            help=reason or f"{tool} around one call",
        )
        if reason is None:
            st.segmented_control(
                "tool",
                _TOOLS,
                default=_TOOLS[0],
                key="extras/tool",
                required=True,
                label_visibility="collapsed",
            )
        if reason:
            st.caption(reason)
        else:
            reports(spec, "sanitize")


def reports(spec: dict, kind_of_job: str) -> None:
    """Jobs of that kind on this case, newest first, with their downloads."""
    page = "profiler" if kind_of_job == "trace" else "runs"
    for r in _same(spec, kind_of_job)[:3]:
        if r.live:
            jobs.follow(r.id)
            continue
        st.markdown(
            f"{status_text(r.status)} · {captions.when(r)} · [open]({url.link(page, run=r.id)})"
            + (f" · {md(reason_text(r))}" if r.reason else "")
        )
        if kind_of_job == "sanitize":
            st.caption(md(r.progress.message))
        for path, size in run_data.artifacts(r.id):
            if path.endswith(("trace.json.gz", "sanitizer.txt")):
                what = "Chrome trace" if path.endswith(".gz") else "sanitizer report"
                st.link_button(
                    f"Download {what} ({numbers.size(size)})",
                    downloads.address(r.id, path),
                    key=f"extras/{r.id}/{path}",
                )


def _same(spec: dict, kind_of_job: str) -> list[Run]:
    listed, _ = library.runs(kind=kind_of_job, op=spec["op"], limit=40)
    return [r for r in listed if all(r.spec.get(k) == spec[k] for k in ("impl", "case", "dtype", "device"))]


def _why_not(record: Record, where: str) -> str | None:
    if where == "cpu":
        return "compute-sanitizer checks CUDA kernels; this needs a CUDA device"
    if kind(record.impl) == "peer":
        return "compute-sanitizer checks our kernels and yours, not peers"
    return None


def _submit(kind_of_job: str, spec: dict) -> None:
    if any(r.live for r in _same(spec, kind_of_job)):
        return  # a second click before the first was drawn
    submit.submit(kind_of_job, spec)

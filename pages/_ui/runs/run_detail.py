"""One run: its result, notes, environment, log, files, and what can be done with it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import streamlit as st

from fusescope import ops
from fusescope.charts import captions, numbers, report
from fusescope.core import command
from fusescope.core.errors import RunError
from fusescope.core.records import Record, Run
from fusescope.jobs import submit
from fusescope.store import folder, library, transfer
from pages._ui.answer import answer, form_query, selfcheck
from pages._ui.app import callbacks, jobs, run_data, url
from pages._ui.fusion import detail as fusion_detail
from pages._ui.models import detail as models_detail
from pages._ui.profiler import data
from pages._ui.routes import downloads
from pages._ui.widgets import elements, html_table
from pages._ui.widgets.text import md, run_name, sentence

_TRACE = "artifacts/trace.json.gz"
_MOST_FILES = 500  # of one run with a link each; an import may have 5,000


def wanted(state: url.State) -> str | None:
    """The id in ?run=, None where there is none; an unknown one is one sentence above the library."""
    run_id = state.query.get("run")
    if not run_id:
        return None
    try:
        return library.find(run_id).name
    except RunError as error:
        state.problems.append(f"{sentence(error)}.")
        return None


def draw(state: url.State, run_id: str) -> None:
    """The page of one run."""
    state.keep("run", run_id)
    st.page_link("pages/runs.py", label="‹ All runs", query_params=url.of_list("runs"))
    run = run_data.read(run_id)
    if run.imported:
        st.badge("imported", color="orange", help="Whoever made it chose what it says and names")
    if run.status == "incomplete":
        st.warning(f"Part of this run is gone since it ended: {md(run.reason)}.")
    _actions(run)
    if run.kind == "bench":
        answer.draw(state, run_id, link=False)
    else:
        answer.heading(run, link=False)
        _other(run)
        if run.kind in models_detail.KINDS:
            models_detail.draw(run)
        if run.kind in fusion_detail.KINDS:
            fusion_detail.draw(run)
        if run.kind == selfcheck.KIND:
            selfcheck.draw(run)
    _notes(run)
    left, right = st.columns(2, gap="medium")
    with left:
        _facts(run)
    with right:
        _files(run)
    log = run_data.log(run_id)
    with st.expander("Log"):
        if log:
            elements.listing(log, None, 300)
        else:
            st.caption("The log is empty.")


def _actions(run: Run) -> None:
    """Open in a page, resume, cancel, export, report, delete."""
    with st.container(horizontal=True, gap="small"):
        if run.kind == "bench":
            query = {"run": run.id} | form_query.of(run)
            if st.button("Open in Kernels", key="run/open"):
                st.switch_page("pages/kernels.py", query_params=query)
        if run.kind in models_detail.KINDS:
            models_detail.button(run)
        if run.kind in fusion_detail.KINDS:
            fusion_detail.button(run)
        if run.kind == "parallel" and st.button("Open in Scaling", key="run/scaling"):
            st.switch_page("pages/scaling.py", query_params={"run": run.id})
        if run.kind in ("bench", "model") and st.button("Compare with…", key="run/compare"):
            st.switch_page("pages/runs.py", query_params={"compare": run.id})
        there = run.kind != "parallel" or data.has_profile(library.find(run.id))
        if run.kind in data.KINDS and there and st.button("Open in Profiler", key="run/profiler"):
            st.switch_page("pages/profiler.py", query_params={"run": run.id})
        if run.live:
            st.button("Cancel", on_click=callbacks.careful(submit.cancel), args=(run.id,), key="run/cancel")
        jobs.resume(run, "run/resume")
        if not run.live:
            st.download_button(
                "Download run",
                data=lambda: _bundle(run.id),
                file_name=f"{run.id}.fsrun.tar.gz",
                on_click="ignore",
                key="run/export",
                help="The whole run as one file, to be imported elsewhere",
            )
        if run.kind in ("bench", "model", *fusion_detail.KINDS) and not run.live:
            st.download_button(
                "Download report",
                data=lambda: _report(run.id),
                file_name=f"{run.id}.html",
                mime="text/html",
                on_click="ignore",
                key="run/report",
                help="One HTML file with live charts that opens offline",
            )
        if run.kind == "trace" and _TRACE in dict(run_data.artifacts(run.id)):
            st.link_button(
                "Download Chrome trace", downloads.address(run.id, _TRACE), type="primary", key="run/trace"
            )
        if not run.recorded and not run.live:
            with st.popover("Delete"):
                st.markdown(f"Delete **{run.id}** and all its files? This cannot be undone.")
                if st.button("Delete it", type="primary", key="run/delete"):
                    transfer.delete(run.id)
                    st.session_state.setdefault("jobs/toasts", []).append(f"Deleted {run.id}.")
                    st.switch_page("pages/runs.py")


def _other(run: Run) -> None:
    """A run that is not a benchmark: its progress; the last message of one that ended before it was done, or
    whose last message is the result.
    """
    if run.live:
        jobs.follow(run.id)
    elif run.progress.message and (run.status != "done" or run.kind == "sanitize"):
        st.caption(md(run.progress.message))


def _notes(run: Run) -> None:
    """Title, tags and notes, editable unless the run is a recording."""
    with st.expander("Title, tags, notes", expanded=bool(run.notes)):
        if run.recorded:
            st.caption("A recorded run is read-only; download and import it to annotate a copy.")
            st.markdown(md(run.notes) or "_no notes_")
            return
        with st.form(f"notes/{run.id}", border=False):
            title = st.text_input("title", value=run.title)
            tags = st.text_input("tags", value=", ".join(run.tags), help="comma-separated")
            notes = st.text_area("notes", value=run.notes)
            if st.form_submit_button("Save"):
                names = [t.strip() for t in tags.split(",") if t.strip()]
                folder.write_notes(library.find(run.id), title=title.strip(), tags=names, notes=notes)
                st.session_state.setdefault("jobs/toasts", []).append("Saved.")
                st.rerun()


def _facts(run: Run) -> None:
    with st.expander("Environment", expanded=False):
        rows = {k: v for k, v in run.environment.items() if not isinstance(v, dict | list)}
        html_table.facts(rows.items())
        nested = {k: v for k, v in run.environment.items() if isinstance(v, dict | list)}
        if nested:
            st.json(nested, expanded=1)
    with st.expander("Configuration"):
        if line := command.again(run.kind, run.spec):
            st.code(line, language=None, wrap_lines=True)
        st.json(dict(run.spec), expanded=2)
    took = (run.finished or 0) - (run.started or 0) if run.finished and run.started else None
    st.caption(f"Created {captions.date(run.created) or numbers.NA}; took {numbers.seconds(took)}.")


def _files(run: Run) -> None:
    with st.expander("Files", expanded=run.kind in ("trace", "sanitize")):
        there = run_data.artifacts(run.id)
        for path, size in there[:_MOST_FILES]:
            st.markdown(f"[{md(path)}]({downloads.address(run.id, path)}) · {numbers.size(size)}")
        if len(there) > _MOST_FILES:
            st.caption(f"and {len(there) - _MOST_FILES:,} more files")


def _bundle(run_id: str) -> bytes:
    """The export as bytes; large traces have links of their own that stream."""
    with tempfile.TemporaryDirectory() as home:
        return transfer.export(run_id, Path(home)).read_bytes()


def _report(run_id: str) -> str:
    run, samples = run_data.read(run_id), folder.samples(library.find(run_id))
    if run.kind in fusion_detail.KINDS:
        records, samples, unit = fusion_detail.records(run), (), "matrix"
    else:
        records = run_data.records(run_id)
        unit = _unit(run, records)
    again = command.again(run.kind, run.spec)
    return report.page(run, records, samples, again, unit, run_name(run))


def _unit(run: Run, records: list[Record]) -> str:
    """Which of the device's rates bounds the run's work: "matrix" or "vector"."""
    if run.kind == "model" or not records:
        return "matrix"
    return ops.load(records[0].op).cost(dict(records[0].case), records[0].dtype).unit

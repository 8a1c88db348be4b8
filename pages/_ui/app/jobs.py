"""Running jobs in the frame of every page: progress, ETA, cancel; and the word that one has finished,
wherever the user is."""

from __future__ import annotations

import streamlit as st

from fusescope.charts import numbers
from fusescope.core.errors import RunError
from fusescope.core.records import Progress, Run
from fusescope.jobs import submit
from fusescope.store import folder, library
from pages._ui.answer import runs
from pages._ui.app import callbacks, redraw, url
from pages._ui.widgets.text import md, run_name, status_words

_TOASTS = "jobs/toasts"
_LIVE = "jobs/live"


def announce() -> None:
    """Show what has finished since the last run of this session as toasts."""
    for text in st.session_state.pop(_TOASTS, []):
        st.toast(text, duration="long")


@st.fragment(run_every=2.0)
def panel() -> None:
    """The queue, renewed on its own; the whole page is drawn again once when a job has ended or a new one has
    appeared."""
    live = submit.queue()
    known = [job["id"] for job in live]
    before = st.session_state.get(_LIVE)
    st.session_state[_LIVE] = known
    ended = [i for i in before or [] if i not in known]
    if ended:
        st.session_state.setdefault(_TOASTS, []).extend(_farewell(i) for i in ended)
        redraw.whole_page()
        announce()
    if not live:
        st.html('<div class="fs-small fs-muted">No job is running.</div>')
        return
    for job in live:
        _one(job)


def _one(job: dict) -> None:
    progress, place = job["progress"], job["place"]
    try:
        name = run_name(folder.read(library.find(job["id"])))
    except RunError:
        return  # it was deleted between listing and drawing
    with st.container(border=True, gap="xsmall"):
        st.html(
            f'<div class="fs-small"><a href="{url.link("runs", run=job["id"])}" target="_self"><b>{_safe(name)}</b></a></div>'
        )
        if place == 0:
            share = min(1.0, progress.done / progress.total) if progress.total else 0.0
            st.progress(share, text=f":small[{progress_words(progress)}]")
        else:
            st.html(
                f'<div class="fs-small fs-muted">{"starting" if place is None else f"queued, {place} before it"}</div>'
            )
        st.button("Cancel", key=f"cancel/{job['id']}", on_click=_cancel, args=(job["id"],), type="tertiary")


def bar(progress: Progress) -> None:
    """How far a job is, as a bar with its words."""
    st.progress(
        min(1.0, progress.done / progress.total) if progress.total else 0.0, text=progress_words(progress)
    )


@st.fragment(run_every=1.0)
def follow(run_id: str) -> None:
    """The progress of one run where its result will stand, renewed on its own; when it ends, the whole page
    is drawn once more."""
    run = runs.read(run_id)
    if not run.live:
        redraw.whole_page()
    bar(run.progress)


def resume(run: Run, key: str) -> None:
    """The button that goes on with a run that ended before it was done; nothing where there is no going
    on."""
    if run.live or run.status == "done" or run.recorded:
        return
    st.button(
        "Resume",
        on_click=callbacks.careful(submit.resume),
        args=(run.id,),
        key=key,
        help="Measure what has no record yet",
    )


def progress_words(progress: Progress) -> str:
    """ "3 of 24 · v2_blockwise, seq=512 · about 20 s left"."""
    parts = [
        f"{progress.done} of {progress.total}" if progress.total else "",
        md((progress.message or "")[:90]),
    ]
    if progress.eta_s is not None:
        parts.append(f"about {numbers.seconds(progress.eta_s)} left")
    return " · ".join(p for p in parts if p) or "working"


def _cancel(run_id: str) -> None:
    try:
        submit.cancel(run_id)
        st.toast("Asked it to stop; what is measured stays.")
    except RunError as error:
        st.toast(str(error))


def _farewell(run_id: str) -> str:
    try:
        run = folder.read(library.find(run_id))
    except RunError as error:
        return str(error)
    return f"**{md(run_name(run))}**: {status_words(run.status)}" + (
        f" · {md(run.reason)}" if run.reason else ""
    )


def _safe(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")

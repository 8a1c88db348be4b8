"""Running jobs in the frame of every page: progress, time left, cancel; and a notice when one has
finished."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from fusescope.charts import numbers
from fusescope.core.errors import RunError
from fusescope.core.records import Progress, Run
from fusescope.jobs import submit
from pages._ui.app import callbacks, redraw, run_data, url
from pages._ui.widgets.text import escape, md, run_name, status_text

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
        name = run_name(run_data.read(job["id"]))
    except RunError:
        return  # it was deleted between listing and drawing
    with st.container(border=True, gap="xsmall"):
        st.html(
            f'<div class="fs-small"><a href="{url.link("runs", run=job["id"])}" target="_self">'
            f"<b>{escape(name)}</b></a></div>"
        )
        if place == 0:
            bar(progress, small=True)
        else:
            waiting = "starting" if place is None else f"queued, {place} ahead"
            st.html(f'<div class="fs-small fs-muted">{waiting}</div>')
        st.button("Cancel", key=f"cancel/{job['id']}", on_click=_cancel, args=(job["id"],), type="tertiary")


def bar(progress: Progress, small: bool = False) -> None:
    """How far a job is, as a bar with its text."""
    text = progress_text(progress)
    share = min(1.0, progress.done / progress.total) if progress.total else 0.0
    st.progress(share, text=f":small[{text}]" if small else text)


@st.fragment(run_every=1.0)
def follow(
    run_id: str,
    head: Callable[[Run], None] | None = None,
    body: Callable[[Run], None] | None = None,
    cancel: bool = False,
) -> None:
    """The progress of one run, updated on its own, between what ``head`` and ``body`` draw; when the run
    ends, the whole page is drawn once more."""
    run = run_data.read(run_id)
    if not run.live:
        redraw.whole_page()
    if head:
        head(run)
    if run.status == "queued":
        st.info(md(run.progress.message) or "Queued; it starts when the device is free.")
    else:
        bar(run.progress)
    if cancel:
        st.button("Cancel", key="run/cancel", on_click=callbacks.careful(submit.cancel), args=(run_id,))
    if body:
        body(run)


def resume(run: Run, key: str) -> None:
    """The button that continues a run that ended before it was done; nothing where it cannot be continued."""
    if not (run.live or run.status == "done" or run.recorded):
        st.button(
            "Resume",
            on_click=callbacks.careful(submit.resume),
            args=(run.id,),
            key=key,
            help="Measure what has no result yet",
        )


def progress_text(progress: Progress) -> str:
    """ "3 of 24 · v2_blockwise, seq=512 · about 20 s left"."""
    parts = [
        f"{progress.done} of {progress.total}" if progress.total else "",
        md((progress.message or "")[:90]),
        f"about {numbers.seconds(progress.eta_s)} left" if progress.eta_s is not None else "",
    ]
    return " · ".join(p for p in parts if p) or "working"


def _cancel(run_id: str) -> None:
    try:
        submit.cancel(run_id)
        st.toast("Cancelling; results so far are kept.")
    except RunError as error:
        st.toast(str(error))


def _farewell(run_id: str) -> str:
    try:
        run = run_data.read(run_id)
    except RunError as error:
        return str(error)
    reason = f" · {md(run.reason)}" if run.reason else ""
    return f"**{md(run_name(run))}**: {status_text(run.status)}{reason}"

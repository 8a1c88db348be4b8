"""Running jobs in the frame of every page: progress, time left, cancel; and a notice when one has
finished."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from html import escape as quoted

import streamlit as st

from fusescope.charts import progress
from fusescope.core.errors import RunError
from fusescope.core.records import Run
from fusescope.jobs import submit
from pages._ui.app import device, redraw, run_data, trust, url
from pages._ui.widgets.text import escape, md, run_name, status_text

_TOASTS = "jobs/toasts"
_LIVE = "jobs/live"
_NOTICE = "jobs/notice"
_SHOWN = "jobs/shown"  # of each live job what was last shown
_EVERY_S = 2.0  # of sidebar and page, so that they are one after the other
_NOTICE_S = 3.0  # a redraw within this is our own, for the job that ended; the next is the visitor's
_TAIL = 12  # lines of a log


def tab_title(page: str) -> str:
    """The title of the browser's tab: the page's name, or how a job has ended until the visitor acts."""
    text, at = st.session_state.get(_NOTICE, ("", 0.0))
    if text and time.monotonic() - at < _NOTICE_S:
        return text
    st.session_state.pop(_NOTICE, None)
    return f"{page} · FuseScope"


def announce() -> None:
    """Show what has finished since the last run of this session as toasts."""
    for text in st.session_state.pop(_TOASTS, []):
        st.toast(text, duration="long")


@st.fragment(run_every=_EVERY_S)
def panel() -> None:
    """The device's state and the queue, renewed on their own; the whole page is drawn again once when a job
    has ended or a new one has appeared, or the theme has changed."""
    redraw.in_theme()
    live = submit.queue()
    device.status(live)
    known = [job["id"] for job in live]
    kept = st.session_state.get(_SHOWN, {})
    st.session_state[_SHOWN] = {i: of for i, of in kept.items() if i in known}
    before = st.session_state.get(_LIVE)
    st.session_state[_LIVE] = known
    ended = [i for i in before or [] if i not in known]
    if ended:
        st.session_state.setdefault(_TOASTS, []).extend(_farewell(i) for i in ended)
        st.session_state[_NOTICE] = ended_text(ended[-1]), time.monotonic()
        redraw.whole_page()
        st.set_page_config(page_title=tab_title(""))
        announce()
    if not live:
        st.html('<div class="fs-small fs-muted">No job is running.</div>')
        return
    for job in live:
        _one(job)


def _one(job: dict) -> None:
    place = job["place"]
    try:
        run = run_data.read(job["id"])
    except RunError:
        return  # it was deleted between listing and drawing
    with st.container(border=True, gap="xxsmall", key=f"job-{job['id']}"):
        name, waits = run_name(run), _waits(run)
        st.html(
            f'<div class="fs-small fs-two" title="{quoted(name)}">'
            f'<a href="{url.link("runs", run=job["id"])}" target="_self"><b>{escape(name)}</b></a></div>'
        )
        if place == 0:
            bar(run, small=True)
        else:
            st.html(f'<div class="fs-small fs-muted fs-two" title="{quoted(waits)}">{escape(waits)}</div>')
        _cancel_button(run.id, f"cancel/{run.id}", "tertiary")


def _waits(run: Run) -> str:
    """ "starting", or "queued on cuda:0, 2 ahead": the same in the sidebar, on the page and in the log."""
    return run.progress.message or "starting"


def bar(run: Run, small: bool = False) -> None:
    """How far a job is: a bar with what is being done, since when and for how long still, and, where there is
    room for it, the last line of its log."""
    now = shown(run)
    text = md(now.words)
    st.progress(now.share, text=f":small[{text}]" if small else text)
    if not small and (line := progress.last_line(run_data.log(run.id, 2000))[:300]):
        st.html(f'<div class="fs-small fs-muted fs-line" title="{quoted(line)}">{escape(line)}</div>')


def shown(run: Run) -> progress.Shown:
    """What is shown of a running job: the same in the sidebar and on the page, which renew themselves one
    after the other."""
    kept, now = st.session_state.setdefault(_SHOWN, {}), time.time()
    before = progress.Shown(**kept[run.id]) if run.id in kept else None
    if before and now - before.at < _EVERY_S / 2:
        return before
    begun = submit.begun(run.id)
    found = progress.Moment(run.progress, now - begun if begun else None, now).after(before, begun)
    kept[run.id] = dataclasses.asdict(found)
    return found


@st.fragment(run_every=_EVERY_S)
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
        st.info(md(progress.waiting(_waits(run), submit.asked(run.id), time.time())))
    elif run.live:
        bar(run)
        _log(run_id)
    if cancel:
        _cancel_button(run_id, f"run/cancel/{run_id}")
    if body:
        body(run)


def resume(run: Run, key: str) -> None:
    """The button that continues a run that ended before it was done; nothing where it cannot be continued."""
    if not (run.live or run.status == "done" or run.recorded):
        trust.button(
            "Resume",
            key,
            run,
            run.spec,
            submit.resume,
            (run.id, True),
            help="Measure what has no result yet",
        )


def _log(run_id: str) -> None:
    lines = run_data.log(run_id, 4000).splitlines()[-_TAIL:]
    if lines:
        with st.expander("Log"):
            st.code("\n".join(lines), language=None, wrap_lines=True)


def _cancel_button(run_id: str, key: str, kind: str = "secondary") -> None:
    """Cancel, or that it was asked for: the job may be in the middle of what cannot be interrupted, and is
    ended after a while."""
    asked = submit.cancelling(run_id)
    text = "Cancelling…" if asked else "Cancel"
    kept = "Results so far are kept"
    st.button(text, key=key, on_click=_cancel, args=(run_id,), type=kind, disabled=asked, help=kept)


def _cancel(run_id: str) -> None:
    """A callback within a fragment. A toast from there would take the place of the page's style, which is an
    event, too, until the page is drawn again; the button says that it is being done."""
    try:
        submit.cancel(run_id)
    except RunError as error:
        st.session_state.setdefault(_TOASTS, []).append(str(error))


def ended_text(run_id: str) -> str:
    """How a job ended, for the tab: "✓ done · attention, 12 implementations"."""
    try:
        run = run_data.read(run_id)
    except RunError:
        return "FuseScope"
    return f"{_ended(run)} · {run_name(run)}"


def _farewell(run_id: str) -> str:
    try:
        run = run_data.read(run_id)
    except RunError as error:
        return str(error)
    told = run.reason and run.reason != f"{run.status} by user"  # which the status says
    reason = f" · {md(run.reason)}" if told else ""
    return f"**{md(run_name(run))}**: {md(_ended(run))}{reason}"


def _ended(run: Run) -> str:
    """ "✓ done", or "✗ done: 1 wrong, 2 failed": a run is done whatever it found."""
    found = _found(run.id) if run.status == "done" else []
    wrong, failed = (
        found.count("wrong"),
        sum(status not in ("ok", "wrong", "unsupported") for status in found),
    )
    told = [f"{count:,} {word}" for count, word in ((wrong, "wrong"), (failed, "failed")) if count]
    return f"✗ done: {', '.join(told)}" if told else status_text(run.status)


def _found(run_id: str) -> list[str]:
    """The states of its records; none where it has none that can be read."""
    try:
        return [record.status for record in run_data.records(run_id)]
    except RunError:
        return []

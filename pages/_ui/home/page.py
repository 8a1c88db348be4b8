"""Home: where to start, the last answer (or one recorded on a GPU), the device, the doctor's verdict, the
last runs."""

from __future__ import annotations

import streamlit as st

from fusescope.charts import numbers
from fusescope.store import library
from pages._ui.answer import answer, runs
from pages._ui.app import device, url
from pages._ui.home import findings
from pages._ui.runs import run_table
from pages._ui.widgets.text import md

_SHOWN = {"batch": 16, "heads": 12, "seq": 2048, "head_dim": 64, "mask": "bigbird"}
"""The case of attention that a new visitor sees: long enough to matter, with a mask whose tiles can be
skipped."""


def draw(state: url.State) -> None:
    """The whole page."""
    left, right = st.columns([2, 3], gap="medium")
    with left:
        with st.container(border=True):
            _device()
        with st.container(border=True):
            st.subheader("This machine", anchor=False)
            found = findings.examined()
            findings.verdict(found)
            findings.everything(found)
    with right:
        _start()
        _answer()
    _last()


def _device() -> None:
    facts = device.facts(device.current())
    st.subheader(str(facts.get("device_name") or device.current()), anchor=False)
    rows = [
        ("device", device.current()),
        ("architecture", facts.get("arch")),
        ("multiprocessors", facts.get("sms")),
        ("memory", numbers.size(facts.get("memory_bytes"))),
        ("last-level cache", numbers.size(facts.get("l2_bytes") or facts.get("llc_bytes"))),
        ("threads", None if device.is_gpu() else facts.get("cpu_threads")),
        ("driver", facts.get("driver")),
        ("torch", facts.get("torch")),
        ("nvcc", facts.get("nvcc")),
    ]
    st.html(
        "<table class='fs-small'>"
        + "".join(
            f"<tr><td class='fs-muted' style='padding-right:1rem'>{k}</td><td>{v}</td></tr>"
            for k, v in rows
            if v
        )
        + "</table>"
    )


def _start() -> None:
    own, total = library.runs(kind="bench", recorded=False, limit=1)
    with st.container(border=True):
        st.subheader("Start here", anchor=False)
        if total:
            st.markdown(
                "Change a kernel, compare again, and see whether it is still right and by how much it got faster."
            )
            st.page_link(
                "pages/kernels.py",
                label="**Continue with the last comparison →**",
                query_params={"run": own[0].id, "op": str(own[0].spec.get("op"))},
            )
        else:
            st.markdown(
                "Pick attention and a mask, press Run, and see which implementation is right and fastest on this device."
            )
            st.page_link("pages/kernels.py", label="**Run a first comparison →**")
        st.page_link("pages/build.py", label="Build the kernels and see what the compiler says")
        recorded = runs.recorded(limit=1)
        if recorded:
            st.page_link(
                "pages/runs.py",
                label="Look at runs recorded on other hardware",
                query_params={"recorded": "yes"},
            )


def _answer() -> None:
    """The newest comparison made here; before the first one what was recorded for attention on other
    hardware."""
    own = runs.newest("bench", recorded=False)
    if own and runs.records(own.id):
        answer.brief(own.id)
    elif near := runs.nearest("attention", _SHOWN):
        st.caption("Nothing was compared here yet. Such an answer, measured on other hardware:")
        answer.brief(*near)


def _last() -> None:
    own, total = library.runs(recorded=False, limit=8)
    if own:
        st.subheader("Last runs", anchor=False)
        run_table.draw(own, "home/own")
        st.page_link("pages/runs.py", label=f"All {total} runs" if total > 1 else "Open it among all runs")
    recorded = runs.recorded(limit=8)
    if recorded:
        names = ", ".join(sorted({r.device_name for r in recorded}))
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.subheader("Recorded runs", anchor=False, width="content")
            st.badge(f"recorded on {md(names)}", color="blue")
        run_table.draw(recorded, "home/recorded")

"""Home: where to start, the last result (or one recorded on a GPU), the device, the doctor's checks, recent
runs."""

from __future__ import annotations

import streamlit as st

from fusescope.charts import numbers
from fusescope.store import library
from pages._ui.answer import answer, run_table
from pages._ui.app import device, findings, run_data, url
from pages._ui.widgets import html_table
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
        _latest()
    _recent()


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
    html_table.facts((k, v) for k, v in rows if v)


def _start() -> None:
    own, total = library.runs(kind="bench", recorded=False, limit=1)
    with st.container(border=True):
        st.subheader("Start here", anchor=False)
        if total:
            st.markdown(
                "Change a kernel, compare again, and see whether it is still correct and how much faster "
                "it is."
            )
            st.page_link(
                "pages/kernels.py",
                label="**Continue with the last comparison →**",
                query_params={"run": own[0].id, "op": str(own[0].spec.get("op"))},
            )
        else:
            st.markdown(
                "Choose attention and a mask, press Run, and see which implementation is correct and "
                "fastest here."
            )
            st.page_link("pages/kernels.py", label="**Run a first comparison →**")
        st.page_link("pages/build.py", label="Build the kernels and see the compiler's figures")
        recorded = run_data.recorded(limit=1)
        if recorded:
            st.page_link(
                "pages/runs.py",
                label="Browse runs recorded on other hardware",
                query_params={"recorded": "yes"},
            )


def _latest() -> None:
    """The newest comparison on this machine; before the first one a recorded one."""
    own = run_data.newest("bench", recorded=False)
    if own and run_data.records(own.id):
        answer.brief(own.id)
    elif near := run_data.nearest("attention", _SHOWN):
        st.caption("No comparisons on this machine yet. Example from recorded hardware:")
        answer.brief(*near)


def _recent() -> None:
    own, total = library.runs(recorded=False, limit=8)
    if own:
        st.subheader("Recent runs", anchor=False)
        run_table.draw(own, "home/own")
        st.page_link("pages/runs.py", label=f"All {total} runs" if total > 1 else "All runs")
    recorded = run_data.recorded(limit=8)
    if recorded:
        names = ", ".join(sorted({r.device_name for r in recorded}))
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.subheader("Recorded runs", anchor=False, width="content")
            st.badge(f"recorded on {md(names)}", color="blue")
        run_table.draw(recorded, "home/recorded")

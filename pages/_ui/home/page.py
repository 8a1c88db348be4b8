"""Home: what is fastest, where to start, attention by mask and shape, this machine, the last results."""

from __future__ import annotations

import streamlit as st

from fusescope.charts import numbers
from fusescope.store import library
from pages._ui.answer import answer, run_table, selfcheck
from pages._ui.app import device, findings, run_data, url
from pages._ui.attention import grid
from pages._ui.home import fastest, links, question
from pages._ui.widgets import html_table
from pages._ui.widgets.text import device_text, md

_DOORS = (
    ("pages/kernels.py", "Compare kernels", "Check and time an operator's implementations", {}),
    (
        "pages/kernels.py",
        "Check my function",
        "Is it correct, and how fast against eager?",
        {"do": "own"},
    ),
    ("pages/models.py", "Run a model", "Whole BERT, GPT-2, Llama …: by execution mode, with memory", {}),
    (
        "pages/profiler.py",
        "Open a trace",
        "Chrome, PyTorch, Nsight Systems and Nsight Compute",
        {"do": "import"},
    ),
)


def draw(state: url.State) -> None:
    """The whole page."""
    if cell := st.session_state.pop("home/cell", None):
        st.switch_page("pages/attention.py", query_params={"cell": cell})
    with st.container(border=True):
        asked = question.draw(state)
        chosen = bool(state.out)
        if state.refused:
            st.error(md("; ".join(state.refused)))
        else:
            fastest.draw(asked)
    _doors(asked if chosen else None)
    left, right = st.columns([2, 1], gap="medium")
    with left:
        _grid(asked)
    with right:
        with st.container(border=True):
            _device()
            findings.verdict(found := findings.examined())
            findings.everything(found)
            selfcheck.last()
        _latest()
    _recent()


def _doors(asked: question.Asked | None) -> None:
    """``asked``: the question, once it is another one than Home begins with; its doors open on it."""
    questions = [q for q in (asked.operator, asked.attention, asked.model) if q] if asked else []
    settings = {links.page(q): links.form(q) for q in questions}
    for column, (path, label, text, query) in zip(st.columns(len(_DOORS), gap="small"), _DOORS, strict=True):
        query = query or settings.get(path, {})
        with column.container(border=True, gap="xxsmall", height="stretch"):
            st.page_link(path, label=f"**{label} →**", query_params=query)
            st.caption(text)


def _grid(asked: question.Asked) -> None:
    """Our best attention kernel against the best peer by mask and shape, on the device of the question; where
    none was measured there, on the one that comes first on the page Attention."""
    runs = grid.listed()
    name = asked.device_name
    if not grid.dtypes(runs, name):
        others = grid.devices(runs)
        beside = f"; the map is of {md(device_text(others[0]))}" if others else ""
        st.caption(f"Attention by mask and shape was not measured on {md(device_text(name))}{beside}.")
        if not others:
            return
        name = others[0]
    known = grid.dtypes(runs, name)
    found = grid.of_device(runs, name, asked.dtype if asked.dtype in known else known[0])
    grid.draw(found, "map", _open)
    st.page_link("pages/attention.py", label="Choose device, dtype, mask and shape →")


def _open(case: str) -> None:
    """A click on a cell: its comparison is on the Attention page (a callback)."""
    st.session_state["home/cell"] = case


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


def _latest() -> None:
    """The newest comparison on this machine that has a result."""
    if own := run_data.newest("bench", recorded=False, running=False):
        st.subheader("Last measured here", anchor=False)
        answer.brief(own.id)
    else:
        st.caption("No comparisons on this machine yet.")


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
        st.page_link("pages/runs.py", label="All recorded runs", query_params={"recorded": "yes"})

"""Which workers measure: the choice before Run is pressed, and who they are while a job runs on a cluster."""

from __future__ import annotations

import streamlit as st

from fusescope.core.machine import conditions
from fusescope.core.records import Record, Run
from fusescope.jobs.spec import cluster
from pages._ui.app import device, run_data, url
from pages._ui.forms import fields
from pages._ui.widgets.text import md

_CHOSEN = "{}/measured_by"
_ELSEWHERE = "address"
_EVERY_S = 2.0
_KINDS = ("bench", "model", "traverse", "search")
_HELP = (
    "A cluster shares the work among workers with a device each; what is compared in turn (a case's "
    "implementations, a scheme and the unfused layer) stays on one. docs/cluster.md says how to start "
    "workers on other machines."
)


def choose(state: url.State) -> None:
    """The choice between this device, the workers of this machine and a scheduler's; ValueError for an
    address that is none."""
    several = "every GPU of this machine" if device.is_gpu() else "two workers, half of the cores each"
    here = "local" if device.is_gpu() else "local:2"
    names = {"": "this device", here: several, _ELSEWHERE: "workers of a scheduler"}
    picked = fields.pick(state, "cluster", "measured by", list(names), format_func=names.get, help=_HELP)
    chosen_key = _CHOSEN.format(state.page)
    st.session_state[chosen_key] = picked
    if picked == _ELSEWHERE:
        key = state.seed("scheduler", "")
        text = st.text_input("scheduler", key=key, placeholder="tcp://127.0.0.1:8786").strip()
        state.keep("scheduler", text, "")
        st.session_state[chosen_key] = ""
        if not text:
            raise ValueError("name the scheduler, such as tcp://127.0.0.1:8786")
        if cluster.parse(text).how != "address":
            raise ValueError(f"a scheduler is at tcp://HOST:PORT or tls://HOST:PORT, not {text}")
        st.session_state[chosen_key] = text


def chosen(page: str, kind: str) -> dict[str, str]:
    """What the choice on the page adds to the specification of a job of this kind."""
    text = st.session_state.get(_CHOSEN.format(page))
    return {"cluster": text} if text and kind in _KINDS else {}


def draw(run: Run, records: list[Record]) -> None:
    """Who measures: each worker with its device and what it runs now; over unlike devices a warning."""
    if text := conditions.unlike(records):
        st.warning(md(text))
    if run.live and run.spec.get("cluster"):
        _live(run.id)
    else:
        _table(run)


@st.fragment(run_every=_EVERY_S)
def _live(run_id: str) -> None:
    _table(run_data.read(run_id))


def _table(run: Run) -> None:
    found = run.environment.get("workers")
    known = [w for w in found if isinstance(w, dict)] if isinstance(found, list) else []
    if not known:
        return
    there = sum(not w.get("lost") for w in known)
    with st.expander(f"workers: {there} of {len(known)}", expanded=run.live):
        head = ["| worker | device | host | done | now |", "|---|---|---|---|---|"]
        st.markdown("\n".join([*head, *map(_row, known)]))


def _row(worker: dict) -> str:
    now = "lost" if worker.get("lost") else worker.get("now") or "–"
    values = [worker.get(key) for key in ("name", "device_name", "host", "done")]
    cells = [md(str("n/a" if v is None else v)) for v in (*values, now)]
    return f"| {' | '.join(cells)} |"

"""The device while the job ran: clocks, power, temperature, utilisation, and throttling."""

from __future__ import annotations

import streamlit as st

from fusescope.charts import numbers
from fusescope.charts.profile import telemetry
from fusescope.store import files
from pages._ui.app import url
from pages._ui.profiler import sentences
from pages._ui.profiler.data import Profile
from pages._ui.widgets import elements, style
from pages._ui.widgets.text import md


def draw(state: url.State, found: Profile) -> None:
    """Panels over time with throttle bands, and the figures of the recording."""
    if not found.has("telemetry"):
        sentences.lacks("telemetry", "Jobs that profile here record it; an imported file has none.")
        return
    data = sentences.frame(found, "telemetry")
    file = found.path / "artifacts" / "telemetry.json"
    facts = files.read_json(file) if file.is_file() else {}
    columns = {c: data[c].astype(object).where(data[c].notna(), None).tolist() for c in data.columns}
    figures = [
        ("samples", f"{len(data):,}"),
        ("samples/s", numbers.three(facts.get("hz"))),
        ("throttled", sentences.share(facts.get("throttled"))),
        ("source", {"nvml": "NVML", "process": "the process"}.get(str(facts.get("source")), numbers.NA)),
    ]
    elements.metrics(figures)
    elements.chart(
        telemetry.panels(columns, sentences.subtitle(found), style.theme()), found.name("telemetry"), data
    )
    if facts.get("note"):
        note = str(facts["note"])
        st.caption(md(note[:1].upper() + note[1:]) + ".")
    reasons = facts.get("reasons") or []
    elements.note(
        "Shaded: " + ", ".join(md(str(r)) for r in reasons) + ". Times measured then are of a slower device."
        if reasons
        else "Not throttled. Shaded bands would mark throttling (power cap, thermal or hardware slowdown)."
    )

"""The device while the job ran: clocks, power, temperature, use, and when it was throttled."""

from __future__ import annotations

import json

import streamlit as st

from backend.charts import numbers, telemetry
from pages._ui import profiler_words, show, style, url
from pages._ui.profiler_data import Profile
from pages._ui.words import md


def draw(state: url.State, found: Profile) -> None:
    """Panels over time with throttle bands, and the figures of the recording."""
    if not found.has("telemetry"):
        profiler_words.lacks("telemetry", "Jobs that profile here record it; an imported file has none.")
        return
    data = profiler_words.frame(found, "telemetry")
    file = found.path / "artifacts" / "telemetry.json"
    facts = json.loads(file.read_text()) if file.is_file() else {}
    columns = {c: data[c].astype(object).where(data[c].notna(), None).tolist() for c in data.columns}
    figures = [
        ("samples", f"{len(data):,}"),
        ("samples a second", numbers.three(facts.get("hz"))),
        ("throttled", profiler_words.share(facts.get("throttled"))),
        ("from", {"nvml": "NVML", "process": "the process"}.get(str(facts.get("source")), numbers.NA)),
    ]
    for box, (label, value) in zip(st.columns(len(figures)), figures, strict=True):
        box.metric(label, value)
    show.chart(telemetry.panels(columns, profiler_words.subtitle(found), style.theme()), found.name("telemetry"), data)
    if facts.get("note"):
        note = str(facts["note"])
        st.caption(md(note[:1].upper() + note[1:]) + ".")
    reasons = facts.get("reasons") or []
    show.note(
        "Shaded: " + ", ".join(md(str(r)) for r in reasons) + ". Times measured then are those of a slower device."
        if reasons
        else "Shaded bands would mark throttling (power cap, slowdowns by heat or hardware)."
    )

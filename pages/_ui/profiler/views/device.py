"""The device while the job ran: how busy its streams were; clocks, power, temperature, utilisation, and
throttling."""

from __future__ import annotations

import streamlit as st

from fusescope.analysis.profile.device_time import DeviceTime
from fusescope.charts import numbers
from fusescope.charts.profile import telemetry
from fusescope.store import files
from pages._ui.app import url
from pages._ui.profiler import sentences
from pages._ui.profiler.data import Profile
from pages._ui.widgets import elements, html_table, style
from pages._ui.widgets.text import md

_STREAMS = 8  # of a device that the overview names


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


def streams(parts: DeviceTime | None) -> None:
    """The busy share of each stream and what ran at once, for the overview; nothing where no device has
    several."""
    of_devices = parts.concurrency if parts else ()
    for one in of_devices:
        part = lambda ns, span=one.span_ns: numbers.percent(ns / span) if span else numbers.NA  # noqa: E731
        where = f" of GPU {one.device}" if len(of_devices) > 1 and one.device is not None else ""
        st.markdown(f"**Streams{where}**, busy of {numbers.time(one.span_ns / 1e6)}")
        lines = [
            (
                "no stream named" if s.number is None else f"stream {s.number}",
                numbers.time(s.busy_ns / 1e6),
                f"{part(s.busy_ns)}, {numbers.plural(s.events, 'event')}",
            )
            for s in one.streams[:_STREAMS]
        ]
        if rest := one.streams[_STREAMS:]:
            most = numbers.time(rest[0].busy_ns / 1e6)
            lines.append((numbers.plural(len(rest), "more stream"), f"≤ {most}", "each"))
        lines.append(
            ("kernels of several streams at once", numbers.time(one.kernels_ns / 1e6), part(one.kernels_ns))
        )
        if one.copies_ns:
            lines.append(
                ("memcpy/memset beside kernels", numbers.time(one.copies_ns / 1e6), part(one.copies_ns))
            )
        html_table.facts(lines)

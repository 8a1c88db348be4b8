"""The time breakdown, the timeline, and the whole trace in Perfetto."""

from __future__ import annotations

from functools import partial
from itertools import islice

import pandas as pd
import streamlit as st

from fusescope.charts import numbers
from fusescope.charts.escape import shown
from fusescope.charts.profile import time_breakdown, timeline
from fusescope.store import chrome
from pages._ui.app import cached_chart, url
from pages._ui.forms import fields
from pages._ui.profiler import data, finding, sentences
from pages._ui.profiler.data import Profile
from pages._ui.routes import downloads, perfetto
from pages._ui.widgets import elements, screen, style, told

_BY = {
    "module → operator → kernel": (("module", "operator_name", "name"), ("module", "operator", "kernel")),
    "operator → kernel": (("operator_name", "name"), ("operator", "kernel")),
    "kernel": (("name",), ("kernel",)),
}
_MOST_LANES = 12
_OFFERED = 400  # lanes in the list, which every drawing sends
_BINS = 800
_EACH = 700  # most events of a lane that are drawn one by one


def breakdown(state: url.State, found: Profile) -> None:
    """Icicle or sunburst of the time of the device's kernels; of the host's operators where there is no
    device."""
    if sentences.tables_missing(found):
        return
    a, b = st.columns([2, 1])
    by = fields.segments(state, "by", "by", _BY, box=a)
    shape = fields.segments(state, "shape", "as", time_breakdown.SHAPES, box=b)
    columns, levels = _BY[by]
    kind, of = "kernel time", "summed over all kernels, memcpy/memset and idle time left out"
    if found.has("kernels"):
        rows = data.tree(str(found.path), columns, found.stamp)
    elif found.has("operators"):
        kind, of = "host time", "self time of operators, summed over threads"
        kept = [
            (c, w) for c, w in (("module", "module"), ("name", "operator")) if w in levels or w == "operator"
        ]
        levels = tuple(w for _, w in kept)
        rows = data.tree(str(found.path), tuple(c for c, _ in kept), found.stamp, "operators", "self_ns")
    else:
        sentences.lacks(
            "kernels and no operators", "Reports of Nsight Compute have launches only; see that view."
        )
        return
    fig = cached_chart.once(
        ("breakdown", found.id, found.stamp, by, shape, style.theme()),
        lambda: time_breakdown.picture(
            time_breakdown.nodes(rows, levels), shape, kind, sentences.subtitle(found), style.theme()
        ),
    )
    table = pd.DataFrame(
        [{**dict(zip(levels, r["path"], strict=True)), "ns": r["ns"], "calls": r["calls"]} for r in rows]
    )
    elements.chart(fig, found.name("time-breakdown"), table)
    elements.note(
        f"Click a box to zoom in. Shares are of the {kind}: {of}. "
        "What runs at once adds up to more than wall time."
    )


def line(state: url.State, found: Profile) -> None:
    """Lanes of streams and threads over a span; drawing a box zooms in."""
    if sentences.tables_missing(found):
        return
    lanes = data.lanes(str(found.path), found.stamp) if found.has("kernels") or found.has("operators") else {}
    if not lanes:
        sentences.lacks("timeline", "Traces and Nsight Systems exports have one.")
        return
    if len(lanes) > _OFFERED:
        st.caption(
            f"The file has {len(lanes):,} lanes; the first {_OFFERED} are offered here, all of them in "
            "the tables."
        )
        lanes = dict(islice(lanes.items(), _OFFERED))
    usual = _usual(lanes)
    key = state.seed(
        "lanes", usual, lambda text: [n for n in text.split("|") if n in lanes] or usual, found.id
    )
    told.tell(key, [n for n in st.session_state[key] if n in lanes])
    pinned = "Pinned in this order while you zoom and search, and kept in the address"
    left, right = st.columns([3, 1], gap="small")
    chosen = left.multiselect("lanes", list(lanes), key=key, max_selections=_MOST_LANES, help=pinned)
    state.keep("lanes", "|".join(chosen), "|".join(usual))
    if not chosen:
        st.caption("Choose at least one lane.")
        return
    whole = _whole(found, chosen)
    zero = min(whole[0], ((found.summary or {}).get("span_ns") or whole)[0])
    begin, end = _span(state, found, whole, zero)
    matching = finding.ask(state, found, chosen, begin, end, right)
    views = {
        n: data.window(
            str(found.path), n, begin, end, _BINS, _EACH if len(chosen) < 5 else _EACH // 2, found.stamp
        )
        for n in chosen
    }
    marks = matching.marks if matching else {}
    fig = timeline.lanes(views, zero, sentences.subtitle(found), style.theme(), marks)
    chart = f"profiler/line/{found.id}/{begin}/{end}/{len(chosen)}"
    with st.container(key="wide-chart"):
        st.plotly_chart(
            shown(fig, screen.characters(), clickmode="event", hovermode="closest"),
            theme=None,
            key=chart,
            on_select=partial(_zoom, chart, begin, end, whole, zero, found.id),
            selection_mode="box",
            width="stretch",
            config={
                "displaylogo": False,
                "modeBarButtons": [["toImage", "select2d"]],
                "toImageButtonOptions": {"filename": found.name("timeline")},
            },
        )
    _controls(found, begin, end, whole, zero)
    if matching:
        finding.controls(matching, begin, end, partial(_look, whole=whole, zero=zero, run_id=found.id))
    with st.container(horizontal=True, horizontal_alignment="right"):
        elements.csv(partial(_table, views), found.name("timeline"))
    elements.note("Draw a box to zoom in. One name has one colour; a colour may be of several names.")


def _table(views: dict[str, dict]) -> pd.DataFrame:
    """What is in view: its events where there are few, else its bins."""
    rows = [{"lane": n, **e} for n, v in views.items() for e in v["events"] or ()]
    return pd.DataFrame(
        rows
        or [
            {"lane": n, "bin": i, "busy": b, "begin_here": c, "longest": name}
            for n, v in views.items()
            for i, (b, c, name) in enumerate(
                zip(v["bins"]["busy"], v["bins"]["count"], v["bins"]["name"], strict=True)
            )
        ]
    )


def perfetto_view(state: url.State, found: Profile) -> None:
    """The full Perfetto UI on the run's own trace, or on one made of its tables, without a byte from
    elsewhere."""
    if found.trace is not None:
        perfetto.embed(downloads.address(found.id, found.trace_name))
        elements.note(
            f"{numbers.size(found.trace.stat().st_size)}. W and S zoom, A and D pan. No data leaves this "
            "machine."
        )
        return
    count = chrome.events(found.path)
    if not count or count > chrome.MOST:
        sentences.lacks(
            "Chrome trace",
            f"Its {count:,} events exceed the limit of {chrome.MOST:,}; the timeline shows them all."
            if count
            else "Perfetto opens traces and Nsight Systems exports.",
        )
        return
    perfetto.embed(perfetto.trace_address(found.id, found.rank))
    elements.note(
        f"{count:,} events, made from the tables. W and S zoom, A and D pan. No data leaves this machine."
    )
    st.link_button(
        "Download as Chrome trace", perfetto.trace_address(found.id, found.rank), key="profiler/made"
    )


def _usual(lanes: dict) -> list[str]:
    """Streams of devices, and the first two levels of the first thread."""
    streams = [n for n, lane in lanes.items() if "device" in lane][:4]
    threads = [n for n, lane in lanes.items() if "depth" in lane]
    first = {(lanes[n]["pid"], lanes[n]["tid"]) for n in threads[:1]}
    return (
        streams
        + [
            n for n in threads if (lanes[n]["pid"], lanes[n]["tid"]) in first and (lanes[n]["depth"] or 0) < 2
        ][:2]
    )


def _whole(found: Profile, chosen: list[str]) -> tuple[int, int]:
    spans = [data.events(str(found.path), n, found.stamp) for n in chosen]
    spans = [e for e in spans if len(e.starts)]
    begin, end = min(int(e.starts[0]) for e in spans), max(int(e.reach[-1]) for e in spans)
    return begin, max(end, begin + 1)


def _span(state: url.State, found: Profile, whole: tuple[int, int], zero: int) -> tuple[int, int]:
    """The span in view, absolute ns; everything unless the URL or a zoom says otherwise."""
    key = state.seed("span", "", _read_span, found.id)
    text = st.session_state[key]
    if not text:
        return whole
    a, b = (zero + int(x) for x in text.split("-"))
    if a >= whole[1] or b <= whole[0]:
        st.session_state[key] = ""
        return whole
    state.keep("span", text)
    return a, b


def _read_span(text: str) -> str:
    a, _, b = text.partition("-")
    if not (a.isdecimal() and b.isdecimal() and int(a) < int(b)):
        raise ValueError("a span is first-last in ns since the first event, such as 0-2000000")
    return f"{int(a)}-{int(b)}"


def _controls(found: Profile, begin: int, end: int, whole: tuple[int, int], zero: int) -> None:
    width = end - begin
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for label, span in (
            ("Whole", None),
            ("Zoom out", (begin - width // 2, end + width // 2)),
            ("Zoom in", (begin + width // 4, end - width // 4)),
            ("‹ earlier", (begin - width // 2, end - width // 2)),
            ("later ›", (begin + width // 2, end + width // 2)),
        ):
            st.button(
                label,
                key=f"profiler/{label}",
                on_click=_look,
                args=(span, whole, zero, found.id),
                disabled=(begin, end) == whole and label in ("Whole", "Zoom out", "‹ earlier", "later ›"),
            )
        if found.has("steps"):
            rows = sentences.rows(found, "steps")
            names = {f"step {r['step']}": (r["ts_ns"], r["ts_ns"] + r["dur_ns"]) for r in rows[:200]}
            st.selectbox(
                "go to",
                ["go to step", *names],
                key="profiler/step",
                label_visibility="collapsed",
                width=140,
                on_change=_step,
                args=(names, whole, zero, found.id),
            )
        st.caption(f"{numbers.time(width / 1e6)} from {numbers.time((begin - zero) / 1e6)}")


def _step(names: dict, whole: tuple[int, int], zero: int, run_id: str) -> None:
    span = names.get(st.session_state["profiler/step"])
    st.session_state["profiler/step"] = "go to step"
    if span:
        _look(span, whole, zero, run_id)


def _zoom(chart: str, begin: int, end: int, whole: tuple[int, int], zero: int, run_id: str) -> None:
    """A box was drawn on the timeline (a callback)."""
    boxes = ((st.session_state.get(chart) or {}).get("selection") or {}).get("box") or []
    if boxes:
        low, high = sorted(float(v) for v in boxes[0]["x"])
        _look(tuple(timeline.nanoseconds(v, begin, end, zero) for v in (low, high)), whole, zero, run_id)


def _look(span, whole: tuple[int, int], zero: int, run_id: str) -> None:
    """Show a span of absolute ns from the next drawing on; None: everything. At least ten ns, within the
    whole."""
    key = f"profiler/{run_id}/span"
    if span is None:
        st.session_state[key] = ""
        return
    width = max(10, min(span[1] - span[0], whole[1] - whole[0]))
    first = max(whole[0], min(span[0], whole[1] - width))
    st.session_state[key] = (
        "" if (first, first + width) == whole else f"{first - zero}-{first + width - zero}"
    )

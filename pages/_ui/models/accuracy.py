"""How accurate each execution mode is: by depth, inside attention, in units in the last place, and where it
first exceeds the tolerance."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from fusescope.analysis.accuracy.depth import AGAINST_EAGER, against_eager, first_difference, first_divergence
from fusescope.charts import captions, numbers
from fusescope.charts.models import depth, ulps
from fusescope.charts.numbers import plural
from fusescope.core.records import DTYPES, Run
from fusescope.core.schema.cases import written
from fusescope.jobs import submit
from fusescope.store import library, tables
from pages._ui.answer import answer
from pages._ui.app import cached_chart, device, jobs, run_data, url
from pages._ui.forms import fields
from pages._ui.models.form import Choice
from pages._ui.widgets import elements, style
from pages._ui.widgets.text import md

_HOOKED = ("eager", "sdpa", "flex", "flash", "fusescope", "fused", "fused-int8", "fused-fp8")
_LEVELS = {"all": None, **{word: level for level, word in depth.LEVELS.items()}}
_NONE = "no other run"


def draw(state: url.State, choice: Choice) -> None:
    """The button that starts a check, and the newest (or the URL's) report of the model."""
    _form(state, choice)
    found = run_data.of_model("accuracy", choice.model)
    if not found:
        st.markdown(
            f"**{choice.model}** has not been checked yet. Every execution mode runs on the same input as "
            "a float64 reference with "
            "its own weights; every module, kernel and intermediate of attention is compared."
        )
        return
    a, b = st.columns(2)
    run = fields.report(state, "report", found, _line, "models/judge_shown", a)
    names = {r.id: r for r in found}
    other = fields.pick(
        state,
        "compare",
        "Compare with",
        [_NONE, *(i for i in names if i != run.id)],
        box=b,
        format_func=lambda i: i if i == _NONE else _line(names[i]),
    )
    if run.live:
        jobs.follow(run.id)
        return
    answer.heading(run)
    if run.status != "done":
        elements.note("This run has no report; see its log on the Runs page.")
        return
    entries = report(run.id)["entries"]
    if other != _NONE and names[other].status == "done":
        entries = [*_labelled(entries, "this"), *_labelled(report(other)["entries"], "other")]
    _report(state, run, entries, other)


@st.cache_data(max_entries=16, show_spinner=False)
def report(run_id: str) -> dict[str, Any]:
    """The report of a run that is done."""
    return tables.read(library.find(run_id), "accuracy")


def _form(state: url.State, choice: Choice) -> None:
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with left:
        key = state.seed(
            "judge", [choice.dtype], lambda text: [url.one_of(DTYPES)(d) for d in text.split(",")]
        )
        dtypes = st.multiselect("dtypes", DTYPES, key=key)
        state.keep("judge", ",".join(dtypes), choice.dtype)
    inside = st.toggle(
        "inside attention",
        value=True,
        key="models/inside",
        help="Queries, keys, values, scores, probabilities, context",
    )
    spec = None
    if choice.cases and choice.modes and dtypes and not (state.unconfirmed or state.refused):
        spec = {
            "model": choice.model,
            "case": choice.cases[-1],
            "entries": [[w, d] for d in dtypes for w in choice.modes],
            "device": device.current(),
            "checkpoint": choice.checkpoint,
            "inside": inside,
        }
    with right:
        pressed = st.button(
            "Check accuracy",
            disabled=spec is None,
            key="models/judge_run",
            width="stretch",
            help="Each mode against float64 with its own weights, on the last case of the form",
        )
    if pressed and spec:
        st.session_state["models/judge_shown"] = submit.submit("accuracy", spec)
    if spec and any(w not in _HOOKED for w in choice.modes):
        elements.note("Compiled and captured modes hide their modules; only their output is checked.")


def _report(state: url.State, run: Run, entries: list[dict], other: str) -> None:
    """Verdicts, the chart by depth, the histogram of one place, and the table."""
    _verdicts(entries)
    checked = [e for e in entries if e["rows"]]
    if not checked:
        return
    own = fields.yes(
        state,
        "own",
        "error of each operation alone",
        help="The operation in float64 on the same input, instead of the error accumulated up to it",
    )
    case = dict(run.spec.get("case") or {})
    subtitle = (
        f"{run.device_name} · {captions.date(run.finished)} · batch={case.get('batch')}, "
        f"seq={case.get('seq')}"
    )
    theme = style.theme()
    fig = cached_chart.once(
        ("depth", run.id, other, own, subtitle, theme), lambda: depth.curves(checked, own, subtitle, theme)
    )
    elements.chart(fig, f"{run.id}-depth", lambda: table(checked, None))
    elements.note(
        f"Tolerance: {'; '.join(dict.fromkeys(e['because'] for e in checked))}. A whole model in reduced "
        "precision may have "
        f"{AGAINST_EAGER:g}× the error of its eager form in the same dtype."
    )
    places = list(dict.fromkeys(r["name"] for e in checked for r in e["rows"]))
    place = fields.pick(state, "place", "place", places, places[-1])
    rows = [
        (e, (r["own"] if own else r))
        for e in checked
        for r in e["rows"]
        if r["name"] == place and (r["own"] or not own)
    ]
    counts = pd.DataFrame(
        [
            {"mode": e["way"], "dtype": e["dtype"]} | dict(zip(ulps.ulp_words(), r["ulps"], strict=True))
            for e, r in rows
        ]
    )
    elements.chart(ulps.histogram(rows, place, subtitle, theme), f"{run.id}-ulps", counts)
    level = st.segmented_control(
        "level", list(_LEVELS), default="all", key="models/level", required=True, label_visibility="collapsed"
    )
    elements.table(
        table(checked, _LEVELS[level]), f"{run.id}-accuracy", lambda: table(checked, None), height=380
    )


def _verdicts(entries: list[dict]) -> None:
    """One line per mode: its error, whether and where it exceeds the tolerance, and against eager."""
    eager = {e["dtype"]: e["rows"][-1]["relative_l2"] for e in entries if e["way"] == "eager" and e["rows"]}
    lines = []
    for e in entries:
        name = depth.label(e)
        if e["reason"]:
            lines.append(
                {
                    "mode": name,
                    "verdict": "not checked",
                    "output error": None,
                    "error / eager (×)": None,
                    "first above tolerance": e["reason"],
                }
            )
            continue
        last, first = e["rows"][-1], first_divergence(e["rows"])
        error, base = last["relative_l2"], eager.get(e["dtype"])
        ratio = error / base if base and error is not None and e["way"] != "eager" else None
        good = first is None and (ratio is None or against_eager(error, base, e["dtype"]))
        lines.append(
            {
                "mode": name,
                "verdict": "✓ within tolerance" if good else "✗ above tolerance",
                "output error": error,
                "error / eager (×)": ratio,
                "first above tolerance": e["rows"][first]["name"] if first is not None else "none",
            }
        )
    data = pd.DataFrame(lines).astype({"output error": float, "error / eager (×)": float})
    elements.table(
        data,
        "verdicts",
        why={
            "error / eager (×)": "eager itself, or eager was not checked in this dtype",
            "output error": "it did not run",
        },
    )
    pairs = [e for e in entries if e["rows"]]
    if len(pairs) == 2:
        where = first_difference(pairs[0]["rows"], pairs[1]["rows"])
        text = f"from {md(where)} on" if where else "nowhere: their errors stay within a factor of four"
        st.markdown(f"**{md(depth.label(pairs[0]))}** and **{md(depth.label(pairs[1]))}** diverge {text}.")


def table(entries: list[dict], level: str | None) -> pd.DataFrame:
    """Every place of every entry as a row; ``level``: module, kernel, inside or model, None for all."""
    lines = [
        {
            "mode": depth.label(e),
            "place": r["name"],
            "kind": r["kind"],
            "relative error": r["relative_l2"],
            "operation alone": (r["own"] or {}).get("relative_l2"),
            "tolerance": r["limit"],
            "verdict": "✓" if r["accepted"] else "✗ above",
            "max abs": r["max_abs"],
            "mean abs": r["mean_abs"],
            "max rel": r["max_rel"],
            "mean rel": r["mean_rel"],
            "1 − cosine": 1 - r["cosine"],
            "NaN or ∞": r["unequal"],
        }
        for e in entries
        for r in e["rows"]
        if level is None or r["level"] == level
    ]
    if not lines:
        return pd.DataFrame({"place": [f"no {level} was checked"]})
    return pd.DataFrame(lines).astype({"operation alone": float, "relative error": float})


def _labelled(entries: list[dict], word: str) -> list[dict]:
    return [e | {"label": f"{e['way']}, {e['dtype']} ({word})"} for e in entries]


def _line(run: Run) -> str:
    case, entries = run.spec.get("case") or {}, run.spec.get("entries") or ()
    dtypes = ", ".join(dict.fromkeys(str(d) for _, d in entries))
    when = captions.date(run.finished or run.created)
    where = run.device_name if run.environment else numbers.NA
    state = "" if run.status == "done" else f" ({run.status})"
    sizes = f"batch {written(case.get('batch'))}, seq {written(case.get('seq'))}"
    modes = plural(len(dict.fromkeys(w for w, _ in entries)), "mode")
    return f"{when} · {modes}, {dtypes}, {sizes} · {where}{state}"

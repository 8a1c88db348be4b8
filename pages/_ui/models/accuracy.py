"""How exact each way to run a model is: by depth, inside attention, in units in the last place, and where it
first goes wrong."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from fusescope.analysis.accuracy import depth as accuracy_depth
from fusescope.charts import numbers, template
from fusescope.charts.models import depth, ulps
from fusescope.core.records import DTYPES, Run
from fusescope.jobs import submit
from fusescope.store import library, tables
from pages._ui.answer import answer
from pages._ui.app import cached_chart, callbacks, device, jobs, style, url
from pages._ui.models.form import Choice
from pages._ui.widgets import elements
from pages._ui.widgets.text import md

_HOOKED = ("eager", "sdpa", "flex", "fusescope", "fused")
_LEVELS = {"all": None, **{word: level for level, word in depth.LEVELS.items()}}
_NONE = "no other run"


def draw(state: url.State, choice: Choice) -> None:
    """The button that judges, and the newest (or the URL's) report of the model."""
    _ask(state, choice)
    found = of_model(choice.model)
    if not found:
        st.markdown(
            f"**{choice.model}** was not judged here yet: every way runs on the same input as a float64 reference with its own "
            "weights, and every module, kernel and intermediate of attention is compared."
        )
        return
    names = {r.id: r for r in found}
    key = state.seed("judged", found[0].id)
    asked = st.session_state.pop("models/judge_shown", None) or st.session_state[key]
    st.session_state[key] = asked if asked in names else found[0].id
    a, b = st.columns(2)
    run_id = a.selectbox("report", list(names), key=key, format_func=lambda i: _words(names[i]))
    state.keep("judged", run_id, found[0].id)
    others = [_NONE, *(i for i in names if i != run_id)]
    key = state.seed("beside", _NONE)
    if st.session_state[key] not in others:
        st.session_state[key] = _NONE
    beside = b.selectbox(
        "beside it", others, key=key, format_func=lambda i: i if i == _NONE else _words(names[i])
    )
    state.keep("beside", beside, _NONE)
    run = names[run_id]
    if run.live:
        jobs.follow(run_id)
        return
    answer.heading(run)
    if run.status != "done":
        elements.note("This run left no report; its log on the Runs page says how far it came.")
        return
    entries = report(run_id)["entries"]
    if beside != _NONE and names[beside].status == "done":
        entries = [*_labelled(entries, "this"), *_labelled(report(beside)["entries"], "beside")]
    _report(state, run, entries, beside)


def of_model(model: str) -> list[Run]:
    """Accuracy runs of a model, newest first; failed ones without a report are left out."""
    listed, _ = library.runs(kind="accuracy", limit=60)
    return [r for r in listed if r.spec.get("model") == model and r.status in ("done", "queued", "running")]


@st.cache_data(max_entries=16, show_spinner=False)
def report(run_id: str) -> dict[str, Any]:
    """The report of a run that is done."""
    return tables.read(library.find(run_id), "accuracy")


def _ask(state: url.State, choice: Choice) -> None:
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with left:
        key = state.seed(
            "judge", [choice.dtype], lambda text: [url.one_of(DTYPES)(d) for d in text.split(",")]
        )
        dtypes = st.multiselect("judge in", DTYPES, key=key)
        state.keep("judge", ",".join(dtypes), choice.dtype)
    inside = st.toggle(
        "inside attention",
        value=True,
        key="models/inside",
        help="Queries, keys, values, scores, probabilities, context",
    )
    spec = None
    if choice.cases and choice.ways and dtypes:
        spec = {
            "model": choice.model,
            "case": choice.cases[-1],
            "entries": [[w, d] for d in dtypes for w in choice.ways],
            "device": device.current(),
            "checkpoint": choice.checkpoint,
            "inside": inside,
        }
    with right:
        st.button(
            "Judge accuracy",
            disabled=spec is None,
            key="models/judge_run",
            on_click=callbacks.careful(_submit),
            args=(spec,),
            width="stretch",
            help="Each way against float64 with its own weights, on the last case of the form",
        )
    if spec and any(w not in _HOOKED for w in choice.ways):
        elements.note("Compiled and captured ways hide their modules: of these the output alone is judged.")


def _submit(spec: dict) -> None:
    st.session_state["models/judge_shown"] = submit.submit("accuracy", spec)


def _report(state: url.State, run: Run, entries: list[dict], beside: str) -> None:
    """Verdicts, the chart by depth, one place's histogram, and the table."""
    _verdicts(entries)
    judged = [e for e in entries if e["rows"]]
    if not judged:
        return
    own = st.toggle(
        "each operation's own error",
        key=state.seed("own", False, lambda t: t == "yes"),
        help="The same input given to the operation in float64, instead of what has come together up to there",
    )
    state.keep("own", "yes" if own else "")
    case = dict(run.spec.get("case") or {})
    subtitle = f"{run.device_name} · {template.date(run.finished)} · batch={case.get('batch')}, seq={case.get('seq')}"
    theme = style.theme()
    fig = cached_chart.once(
        ("depth", run.id, beside, own, subtitle, theme), lambda: depth.curves(judged, own, subtitle, theme)
    )
    elements.chart(fig, f"{run.id}-depth", lambda: table(judged, None))
    elements.note(
        f"Acceptable: {'; '.join(dict.fromkeys(e['because'] for e in judged))}. A whole model in reduced precision may err {accuracy_depth.AGAINST_EAGER:g} times as much "
        "as its eager form in the same dtype."
    )
    places = list(dict.fromkeys(r["name"] for e in judged for r in e["rows"]))
    key = state.seed("place", places[-1])
    if st.session_state[key] not in places:
        st.session_state[key] = places[-1]
    place = st.selectbox("place", places, key=key)
    state.keep("place", place, places[-1])
    rows = [
        (e, (r["own"] if own else r))
        for e in judged
        for r in e["rows"]
        if r["name"] == place and (r["own"] or not own)
    ]
    counts = pd.DataFrame(
        [
            {"way": e["way"], "dtype": e["dtype"]} | dict(zip(ulps.ulp_words(), r["ulps"], strict=True))
            for e, r in rows
        ]
    )
    elements.chart(ulps.histogram(rows, place, subtitle, theme), f"{run.id}-ulps", counts)
    level = st.segmented_control(
        "level", list(_LEVELS), default="all", key="models/level", required=True, label_visibility="collapsed"
    )
    elements.table(
        table(judged, _LEVELS[level]), f"{run.id}-accuracy", lambda: table(judged, None), height=380
    )


def _verdicts(entries: list[dict]) -> None:
    """One line a way: its error, whether it is acceptable, where it first is not, and against eager."""
    eager = {e["dtype"]: e["rows"][-1]["relative_l2"] for e in entries if e["way"] == "eager" and e["rows"]}
    lines = []
    for e in entries:
        name = depth.label(e)
        if e["reason"]:
            lines.append(
                {
                    "way": name,
                    "verdict": "not judged",
                    "output error": None,
                    "against eager (×)": None,
                    "first beyond": e["reason"],
                }
            )
            continue
        last, first = e["rows"][-1], accuracy_depth.first_divergence(e["rows"])
        error, base = last["relative_l2"], eager.get(e["dtype"])
        ratio = error / base if base and error is not None and e["way"] != "eager" else None
        good = first is None and (ratio is None or accuracy_depth.against_eager(error, base, e["dtype"]))
        lines.append(
            {
                "way": name,
                "verdict": "✓ accepted" if good else "✗ beyond its limit",
                "output error": error,
                "against eager (×)": ratio,
                "first beyond": e["rows"][first]["name"] if first is not None else "nowhere",
            }
        )
    data = pd.DataFrame(lines).astype({"output error": float, "against eager (×)": float})
    elements.table(
        data,
        "verdicts",
        why={
            "against eager (×)": "eager itself, or eager was not judged in this dtype",
            "output error": "it did not run",
        },
    )
    pairs = [e for e in entries if e["rows"]]
    if len(pairs) == 2:
        where = accuracy_depth.first_difference(pairs[0]["rows"], pairs[1]["rows"])
        text = (
            f"from {md(where)} on"
            if where
            else "nowhere: their errors stay within a factor of four of each other"
        )
        st.markdown(f"**{md(depth.label(pairs[0]))}** and **{md(depth.label(pairs[1]))}** diverge {text}.")


def table(entries: list[dict], level: str | None) -> pd.DataFrame:
    """Every place of every entry as a row; ``level``: module, kernel, inside or model, None for all."""
    lines = [
        {
            "way": depth.label(e),
            "place": r["name"],
            "kind": r["kind"],
            "relative error": r["relative_l2"],
            "own": (r["own"] or {}).get("relative_l2"),
            "acceptable": r["limit"],
            "verdict": "✓" if r["accepted"] else "✗ beyond",
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
        return pd.DataFrame({"place": [f"no {level} was judged"]})
    return pd.DataFrame(lines).astype({"own": float, "relative error": float})


def _labelled(entries: list[dict], word: str) -> list[dict]:
    return [e | {"label": f"{e['way']}, {e['dtype']} ({word})"} for e in entries]


def _words(run: Run) -> str:
    case, entries = run.spec.get("case") or {}, run.spec.get("entries") or ()
    dtypes = ", ".join(dict.fromkeys(str(d) for _, d in entries))
    when = template.date(run.finished or run.created)
    state = "" if run.status == "done" else f" ({run.status})"
    ways = f"{len(dict.fromkeys(w for w, _ in entries))} ways"
    return f"{when} · {ways}, {dtypes}, batch {case.get('batch')}, seq {case.get('seq')} · {numbers.NA if not run.environment else run.device_name}{state}"

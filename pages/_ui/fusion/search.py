"""Search: the best scheme with few evaluations, live; what it gains over what one could use instead; and
which boundaries matter."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from fusescope.charts import numbers
from fusescope.charts.fusion import explain, progress
from fusescope.core.records import Run
from fusescope.jobs import submit
from fusescope.search.learning import explore
from fusescope.search.scheme.setting import Setting
from pages._ui.answer import answer, runs
from pages._ui.app import cached_chart, jobs, redraw, style, url
from pages._ui.fusion import compare, scheme
from pages._ui.fusion import runs as fusion_runs
from pages._ui.widgets import elements
from pages._ui.widgets.text import md

_TELLING = 20  # schemes: the attention and 14 places to cut are told apart by more schemes than that
_GAINS = {
    "unfused": "15 calls of PyTorch functions",
    "compile": "torch.compile of the whole layer",
    "compile_sdpa": "the layer with scaled_dot_product_attention, compiled",
    "hand_fused": "our kernels, as fused by hand",
}


def draw(state: url.State, setting: Setting) -> None:
    """What is to be searched on top; below, a search and what it found; last, strategies compared on recorded
    truth."""
    _request(state, setting)
    run = fusion_runs.choose(state, "search", "run", ("search",), setting)
    if run is None:
        st.markdown(
            "**Nothing was searched here yet.** A search finds a fast scheme while measuring a few per cent of them."
        )
    else:
        result(run)
    compare.draw(state, setting)


def _request(state: url.State, setting: Setting) -> None:
    names = list(explore.STRATEGIES)
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        key = state.seed("strategy", names[0], url.one_of(names))
        said = "\n\n".join(f"**{n}**: {what}" for n, what in explore.STRATEGIES.items())
        strategy = st.selectbox("strategy", names, key=key, help=said, width=170)
        key = state.seed("evaluations", 100, url.whole(1, 1 << 15))
        evaluations = st.number_input(
            "evaluations", 1, 1 << 15, key=key, help="Schemes measured at most", width=140
        )
        key = state.seed("seconds", 0, url.whole(0, 36_000))
        seconds = st.number_input(
            "seconds", 0, 36_000, key=key, help="Or as long as this; 0: no limit of time", width=140
        )
        pressed = st.button("Search", type="primary", key="fusion/search_go", shortcut="Ctrl+Enter")
    for name, value, default in (
        ("strategy", strategy, names[0]),
        ("evaluations", evaluations, 100),
        ("seconds", seconds, 0),
    ):
        state.keep(name, value, default)
    spec = setting.spec() | {
        "strategy": strategy,
        "evaluations": evaluations,
        "seconds": float(seconds) if seconds else None,
    }
    if pressed:
        fusion_runs.show(state, "search", submit.submit("search", spec))


def result(run: Run) -> None:
    """Progress and best so far while it runs; then the scheme, its speed-ups, and why."""
    if run.live:
        _live(run.id)
        return
    answer.heading(run)
    jobs.resume(run, "fusion/search_resume")
    found(run)


def found(run: Run, here: bool = True) -> None:
    """The scheme, its speed-ups, the way to it, and why; what there is of them. ``here``: on the Fusion page,
    which can show the scheme itself."""
    left = fusion_runs.artifact(run.id, "search.json")
    if left and left.get("result"):
        _result(run, left, here)
    _track(run, left)
    if left:
        _explained(run, left)


@st.fragment(run_every=1.0)
def _live(run_id: str) -> None:
    run = runs.read(run_id)
    if not run.live:
        redraw.whole_page()
    answer.heading(run)
    p = run.progress
    jobs.bar(p)
    _track(run)


def track(times: Sequence[float | None]) -> list[tuple[int, float, float]]:
    """(number, ms or NaN, best so far) of evaluations in their order."""
    best, found = math.inf, []
    for number, ms in enumerate(times, 1):
        best = min(best, ms if ms is not None else math.inf)
        if best < math.inf:
            found.append((number, math.nan if ms is None else ms, best))
    return found


def _track(run: Run, found: dict | None = None) -> None:
    schemes, _ = fusion_runs.layers(run.id)
    order = [(r.impl, fusion_runs.ms(r) if r.status == "ok" else None) for r in schemes]
    order = order or [
        (s["code"], s["ms"]) for s in (found or {}).get("history", ())
    ]  # a replay has no records of its own
    line = track([ms for _, ms in order])
    if not line:
        st.caption("No scheme has a time yet.")
        return
    beside = fusion_runs.baselines(run.id)
    theme, words, strategy = (
        style.theme(),
        fusion_runs.setting_words(run),
        str(run.spec.get("strategy", "search")),
    )
    fig = cached_chart.once(
        ("track", run.id, len(order), str(beside), theme),
        lambda: progress.best_so_far({strategy: line}, beside, words, theme),
    )
    codes = [code for code, _ in order]
    elements.chart(
        fig,
        f"{run.id}-best-so-far",
        lambda: pd.DataFrame(
            [(n, codes[n - 1], ms, best) for n, ms, best in line],
            columns=["evaluation", "code", "ms", "best ms"],
        ),
    )


def _result(run: Run, found: dict, here: bool) -> None:
    best = found["result"]
    row = st.container(horizontal=True, gap="medium", vertical_alignment="center")
    with row, st.container(width=230):
        st.metric("the scheme found", numbers.time(best["ms"]), help="Median time of the layer")
        st.code(best["code"], language=None)
        if here:
            st.button("Show it as a scheme", key="fusion/found", on_click=_open, args=(best["code"],))
        count = len(found["history"])
        st.caption(f"{count:,} schemes measured by {md(str(run.spec.get('strategy')))} search.")
    with row, st.container(width=520):
        gains = best.get("speedups") or {}
        fig = cached_chart.once(
            ("gains", run.id, str(gains), style.theme()),
            lambda: explain.gains(gains, _GAINS, fusion_runs.setting_words(run), style.theme()),
        )
        elements.chart(
            fig, f"{run.id}-gains", lambda: pd.DataFrame([{"over": n, **s} for n, s in gains.items() if s])
        )


def _explained(run: Run, found: dict) -> None:
    rows = found.get("boundaries") or []
    if len(found["history"]) < _TELLING:
        st.caption(
            f"Which boundaries matter is told from at least {_TELLING} schemes; this search measured {len(found['history'])}."
        )
    elif rows:
        words = f"{fusion_runs.setting_words(run)}<br>a cut there, or the attention, against none, all else equal; 95 % intervals"
        fig = cached_chart.once(
            ("boundaries", run.id, len(rows), style.theme()),
            lambda: explain.boundaries(rows, words, style.theme()),
        )
        elements.chart(fig, f"{run.id}-boundaries", lambda: pd.DataFrame(rows))
    costs = found.get("segments") or []
    if costs:
        with st.expander("What each segment costs, fitted to all schemes measured"):
            unit, factor = numbers.time_unit([c["ms"] for c in costs if c["ms"] > 0])
            table = pd.DataFrame(
                {
                    "operators": [_span(c) for c in costs],
                    f"cost ({unit})": [c["ms"] * factor for c in costs],
                    "schemes that have it": [c["count"] for c in costs],
                }
            )
            elements.table(table, f"{run.id}-segments", lambda: pd.DataFrame(costs), height=360, why={})


def _span(cost: dict) -> str:
    first, last = cost["operators"][0], cost["operators"][-1]
    return (f"{first}" if first == last else f"{first}–{last}") + (
        ", hand-written attention" if cost.get("attention") else ""
    )


def _open(code: str) -> None:
    scheme.put(code)
    st.session_state["fusion/part"] = "Scheme"

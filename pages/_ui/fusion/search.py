"""Search: the best scheme found with few evaluations, its speed-ups over the alternatives, and which
boundaries matter."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from fusescope.charts import captions, numbers
from fusescope.charts.fusion import explain, progress
from fusescope.core.records import Run
from fusescope.jobs import submit
from fusescope.search import sessions
from fusescope.search.learning import explore
from fusescope.search.scheme.setting import Setting
from pages._ui.answer import answer, workers
from pages._ui.app import cached_chart, jobs, url
from pages._ui.forms import fields
from pages._ui.fusion import compare, place, runs, scheme
from pages._ui.fusion.runs import Layer
from pages._ui.widgets import elements, screen, style
from pages._ui.widgets.text import device_text, md, sentence

_FEWEST = 20  # schemes: fewer cannot separate the attention and 14 boundaries
_GAINS = {
    "unfused": "15 calls of PyTorch functions",
    "compile": "torch.compile of the whole layer",
    "compile_sdpa": "the layer with scaled_dot_product_attention, compiled",
    "hand_fused": "our kernels, hand-fused",
}


def draw(state: url.State, asked: Layer) -> None:
    """A search and its result; the request for a new one; last, strategies compared on recorded times."""
    run = runs.choose(state, "search", "run", ("search",), asked)
    if run is None:
        st.markdown("**No search yet.** A search finds a fast scheme by measuring a few per cent of them.")
    else:
        result(run)
    if asked.here:
        with st.expander("New search for this layer", expanded=run is None or not runs.same(run, asked)):
            _form(state, asked.setting)
    else:
        st.caption("To start a search, choose this machine under “measured on”.")
    compare.draw(state, asked)


def _form(state: url.State, setting: Setting) -> None:
    names = list(explore.STRATEGIES)
    row = st.container(horizontal=True, gap="small", vertical_alignment="bottom")
    with row:
        key = state.seed("strategy", names[0], url.one_of(names))
        said = "\n\n".join(f"**{n}**: {what}" for n, what in explore.STRATEGIES.items())
        strategy = st.selectbox("strategy", names, key=key, help=said, width=170)
    state.keep("strategy", strategy, names[0])
    narrow = {"box": row, "width": 140}
    evaluations = fields.whole(
        state, "evaluations", "evaluations", 1, 1 << 15, 100, help="Most schemes to measure", **narrow
    )
    seconds = fields.whole(state, "seconds", "seconds", 0, 36_000, 0, help="Time limit; 0: none", **narrow)
    spec = setting.spec() | {
        "strategy": strategy,
        "evaluations": evaluations,
        "seconds": float(seconds) if seconds else None,
    }
    try:
        fields.refuse(state)
        workers.choose(state)
        spec |= workers.chosen(state.page, "search")
        submit.validate("search", spec)
    except (ValueError, TypeError, ModuleNotFoundError) as error:
        st.error(md(sentence(error)))
        spec = None
    go = {"type": "primary", "disabled": spec is None, "key": "fusion/search_go", "shortcut": "Ctrl+Enter"}
    if row.button("Search", **go) and spec:
        runs.start(state.page, "search", spec)


def result(run: Run) -> None:
    """Progress and best so far while it runs; then the scheme, its speed-ups, and why."""
    if run.live:
        jobs.follow(run.id, answer.heading, _track, cancel=True)
        workers.draw(run, [])
        return
    answer.heading(run)
    workers.draw(run, [])  # all alike: a search refuses others
    jobs.resume(run, "fusion/search_resume")
    found(run)


def found(run: Run, here: bool = True) -> None:
    """The scheme, its speed-ups, how it was found, and why it is fast. ``here``: on the Fusion page, which
    can show the scheme itself."""
    left = sessions.found(run.id)
    if left and left["result"]:
        _result(run, left, here)
    _track(run, left)
    if left:
        _explained(run, left)


def track(times: Sequence[float | None]) -> list[tuple[int, float, float]]:
    """(number, ms or NaN, best so far) of evaluations in their order."""
    best, found = math.inf, []
    for number, ms in enumerate(times, 1):
        best = min(best, ms if ms is not None else math.inf)
        if best < math.inf:
            found.append((number, math.nan if ms is None else ms, best))
    return found


def _track(run: Run, found: dict | None = None) -> None:
    schemes, _ = runs.layers(run.id)
    order = [(r.impl, r.ms) for r in schemes]
    order = order or [(s["code"], s["ms"]) for s in (found or {}).get("history", ())]
    line = track([ms for _, ms in order])
    if not line:
        st.caption("No scheme has a time yet.")
        return
    baselines = runs.baselines(run.id)
    theme, caption, strategy = (
        style.theme(),
        runs.caption(run),
        str(run.spec.get("strategy", "search")),
    )
    fig = cached_chart.once(
        ("track", run.id, len(order), str(baselines), theme),
        lambda: progress.best_so_far({strategy: line}, baselines, caption, theme),
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
        st.metric("Best scheme", numbers.time(best["ms"]), help="Median time of the layer")
        st.code(best["code"], language=None)
        if here:
            st.button("Show scheme", key="fusion/found", on_click=_open, args=(best["code"], run))
        count = len(found["history"])
        st.caption(f"{count:,} schemes measured by {md(str(run.spec.get('strategy')))} search.")
    with row, st.container(width=520):
        gains = best["speedups"]
        fig = cached_chart.once(
            ("gains", run.id, str(gains), style.theme()),
            lambda: explain.gains(gains, _GAINS, runs.caption(run), style.theme()),
        )
        rows = lambda: pd.DataFrame([{"over": n, **s} for n, s in gains.items() if s])  # noqa: E731
        elements.chart(fig, f"{run.id}-gains", rows, characters=screen.characters(pixels=520))
    if said := _in_sweep(run, best["code"]):
        st.caption(said)


def _in_sweep(run: Run, code: str) -> str:
    """What the largest sweep of the same layer says of the scheme that was found; "" without one. Its times
    are of another run, perhaps of another unit and shorter sampling, so that only its own ratio counts."""
    setting = runs.setting_of(run)
    sweep = runs.sweep_of(Layer(setting, run.device_name, here=not run.recorded)) if setting else None
    tried = runs.fastest(sweep.id) if sweep and sweep.kind == "traverse" else {}
    if not tried:
        return ""
    first, (least, _) = next(iter(tried.items()))
    units = {r.environment.get("device_uuid") for r in (run, sweep)} - {None}
    device = ("another " if len(units) > 1 else "") + device_text(sweep.device_name)
    said = (
        f"The [sweep of {len(tried):,} schemes]({url.link('runs', run=sweep.id)}) of this layer "
        f"({md(device)}, {captions.when(sweep)})"
    )
    if first == code:
        return f"{said} finds the same scheme fastest, {numbers.time(least)} there."
    said += f" finds `{first}` fastest, {numbers.time(least)} there"
    if code not in tried:
        return f"{said}; it did not measure this scheme."
    own = tried[code][0]
    return (
        f"{said}; this scheme took {numbers.time(own)} there, {numbers.percent(own / least - 1)} longer. "
        "Compare ratios within a run: its times also depend on the GPU's unit, its clock and the sampling "
        "budget."
    )


def _explained(run: Run, found: dict) -> None:
    rows = found["boundaries"]
    if len(found["history"]) < _FEWEST:
        st.caption(
            f"Which boundaries matter needs at least {_FEWEST} measured schemes (this search has "
            f"{len(found['history'])})."
        )
    elif rows:
        caption = (
            f"{runs.caption(run)}<br>a cut there (or the attention) against none, all else equal; 95 "
            "% intervals"
        )
        fig = cached_chart.once(
            ("boundaries", run.id, len(rows), style.theme()),
            lambda: explain.boundaries(rows, caption, style.theme()),
        )
        elements.chart(fig, f"{run.id}-boundaries", lambda: pd.DataFrame(rows))
    costs = found["segments"]
    if costs:
        elements.folded(
            "Cost of each segment, fitted to all measured schemes",
            "fusion/segments",
            lambda: _segments(f"{run.id}-segments", costs),
        )


def _segments(name: str, costs: list[dict]) -> None:
    unit, factor = numbers.time_unit([c["ms"] for c in costs if c["ms"] > 0])
    table = pd.DataFrame(
        {
            "operators": [_span(c) for c in costs],
            f"cost ({unit})": [c["ms"] * factor for c in costs],
            "schemes with it": [c["count"] for c in costs],
        }
    )
    elements.table(table, name, lambda: pd.DataFrame(costs), height=360, why={})


def _span(cost: dict) -> str:
    first, last = cost["operators"][0], cost["operators"][-1]
    return (f"{first}" if first == last else f"{first}–{last}") + (
        ", hand-written attention" if cost["attention"] else ""
    )


def _open(code: str, run: Run) -> None:
    """The scheme on the Scheme tab, with the layer that the run searched (a callback)."""
    place.put(run)
    scheme.put(code)
    st.session_state["fusion/part"] = "Scheme"

"""The Scaling page's result: the run that was started, its layouts, the laws, communication and memory, and
what is predicted from it for devices that are not here."""

from __future__ import annotations

import functools
from collections.abc import Callable

import plotly.graph_objects as go
import streamlit as st

from fusescope.analysis.scaling import measured
from fusescope.charts import captions
from fusescope.charts.scaling import devices, links, ranks
from fusescope.core.records import Record, Run
from fusescope.store import library, profile
from pages._ui.answer import answer, matching, parallel_sizes
from pages._ui.app import cached_chart, jobs, redraw, run_data, url
from pages._ui.forms import busy, fields
from pages._ui.scaling import predictions, tables
from pages._ui.scaling.form import COMPARED, Choice
from pages._ui.widgets import elements, style
from pages._ui.widgets.text import md

VIEWS = ("time", "efficiency", "communication", "memory", "predicted layouts", "collectives")
_SAYS = {
    "time": "Points are measured, with their 95 % intervals; dashed lines are predicted from the times of "
    "one device and the collectives of this run. Twice the devices at half the time is the ideal.",
    "efficiency": "Speed-up over one device divided by the devices: 100 % is ideal. Dotted: the fitted law "
    "of Amdahl (the same work) or Gustafson (a batch in proportion); dashed: predicted.",
    "communication": "Each bar is one profiled call of a rank. Exposed communication is time in which the "
    "rank does nothing else, waiting for slower ranks included; hidden communication runs while it computes.",
    "memory": "Bytes of the weights that a rank holds; on a GPU also what a call takes on top.",
    "collectives": "Points are medians of the slowest rank; dashed: latency and bandwidth fitted to them.",
}


def result(state: url.State, choice: Choice) -> None:
    """What was measured, live while it runs, and the views under it."""
    run_id = matching.shown(
        state, "parallel", choice.op, choice.spec, choice.pressed, COMPARED, "a parallel comparison"
    )
    if run_id is None:
        _first(choice)
        if (shipped := _shipped(choice.op)) is None:
            return
        run_id = shipped.id
    run, records = run_data.read(run_id), run_data.records(run_id)
    if run.live:
        jobs.follow(run_id, answer.heading, _growing, cancel=True)
        return
    answer.heading(run, dimmed=matching.earlier(state, run, choice.spec, COMPARED, choice.asked))
    busy.banner(run, records, functools.partial(matching.follow, state.page))
    matching.notice(state, run, choice.spec, COMPARED, choice.asked)
    if not records:
        st.caption("This run ended before any result.")
        return
    _draw(state, run, records)


def _first(choice: Choice) -> None:
    st.markdown(
        "**No parallel run of this model on this machine yet.**\n"
        "1. Choose a model, its sizes and layouts in the form; on a CPU a small model, such as 2 layers.\n"
        "2. Press Run: a process per device is started; each layout is checked against one device in "
        "float64, then timed in turn with the others.\n"
        "3. Read here what limits it, and the best layouts on up to 1,024 devices, predicted from the run."
    )
    if choice.spec is None:
        st.caption("The form says what keeps it from being run.")


def _shipped(op: str) -> Run | None:
    """The recorded run to look at where this machine has none: of this model where there is one."""
    return run_data.newest("parallel", op, recorded=True) or run_data.newest("parallel", recorded=True)


def _growing(run: Run) -> None:
    if records := run_data.records(run.id):
        tables.layouts(records, str(run.spec.get("baseline")), "live")
    else:
        st.caption("Results appear case by case, once all layouts of a case are checked and timed.")


def _draw(state: url.State, run: Run, records: list[Record]) -> None:
    series, baseline = measured.series(records), str(run.spec.get("baseline"))
    st.markdown(f"**{md(tables.sentence(records, series, baseline))}**")
    if settings := parallel_sizes.settings(run):
        st.caption(md(settings))
    tables.layouts(records, baseline, run.id)
    if run.spec.get("trace") and profile.summary(library.find(run.id)):
        there = url.link("profiler", run=run.id)
        st.caption(f"[Trace of {md(run.spec['trace'])} on every rank]({there})")
    redraw.part(state, lambda now: _view(now, run, records, series))


def _view(state: url.State, run: Run, records: list[Record], series: list[measured.Series]) -> None:
    """The view that is chosen, under its control."""
    view = fields.view(state, "view", VIEWS)
    subtitle, theme = captions.context(run, clock=False), style.theme()
    about = (run.id, run.status, run_data.stamp(library.find(run.id), "results.jsonl"), subtitle, theme)

    def once(make: Callable[[], go.Figure], *more: str) -> go.Figure:
        return cached_chart.once(("scaling", view, *about, *more), make)

    if view == "predicted layouts":
        return predictions.draw(state, run, records)
    if view in ("time", "efficiency"):
        weak = any(s.scaling == "weak" for s in series)
        scaling = "strong"
        if weak:
            words = {"strong": "the same work", "weak": "a batch in proportion"}
            scaling = fields.pick(
                state,
                "scaling",
                "scaling",
                words,
                "strong",
                format_func=words.get,
                box=st.container(width=220),
            )
        own = [s for s in series if s.scaling == scaling]

        def curves() -> devices.Predicted:
            return predictions.curves(run) if scaling == "strong" else {}

        figure = devices.time if view == "time" else devices.efficiency
        elements.chart(
            once(lambda: figure(own, curves(), subtitle, theme), scaling),
            f"scaling_{view}_{run.id}",
            lambda: tables.points(own, curves()),
            says=_SAYS[view],
        )
        return tables.laws(own)
    if view == "collectives":
        found = run.environment.get("links") or {}
        fig = once(lambda: links.by_size(found, subtitle, theme))
        elements.chart(fig, f"collectives_{run.id}", says=_SAYS[view])
        return tables.fits(found)
    figure = ranks.communication if view == "communication" else ranks.memory
    fig = once(lambda: figure(records, subtitle, theme))
    elements.chart(fig, f"ranks_{view}_{run.id}", lambda: tables.ranks(records), says=_SAYS[view])

"""The result of a benchmark run: the speed-up as a large chart, and under it the views that explain it."""

from __future__ import annotations

import contextlib
import functools

import plotly.graph_objects as go
import streamlit as st

from fusescope.analysis import rebase
from fusescope.analysis.compare import options
from fusescope.charts import captions, glossary, sentences, tables
from fusescope.charts.bench import overview, speedup, sweep
from fusescope.charts.colours import short
from fusescope.charts.findings import options as of_options
from fusescope.core.records import Record, Run
from fusescope.jobs import submit
from pages._ui.answer import matching, views, workers
from pages._ui.app import cached_chart, jobs, redraw, run_data, url
from pages._ui.forms import busy, fields
from pages._ui.widgets import elements, style
from pages._ui.widgets.text import md, reason_text, run_name, status_text

ALL = "all cases"
_WIDE = 9  # implementations; with more, the table of cells scrolls on a narrow screen


def draw(state: url.State, run_id: str, dimmed: bool = False, link: bool = True, first: str = ALL) -> None:
    """The run's result. ``dimmed``: it does not belong to the current settings, and stays readable.
    ``first``: the case to open it with, as ``tables.cases`` names it."""
    run, records = run_data.read(run_id), run_data.records(run_id)
    if not run.live:
        heading(run, link=link, dimmed=dimmed)
    sentence = sentence_box(dimmed)
    busy.banner(run, records, functools.partial(matching.follow, state.page))
    workers.draw(run, records)
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        groups = tables.cases(records)
        case = case_picker(state, list(groups), run, first)
        over = compared_with(state, run, groups.get(case, records))
    if run.live:
        follow(run_id, case, "implementations", begun=bool(records))
        if records:
            _live_view(run_id, case, fields.view(state, "view", views.NAMES))
        else:
            state.keep("view", state.query.get("view"))  # of views with nothing in them none is offered
    elif not records:
        st.caption("This run was cancelled before any result.")
    else:
        with st.container(key="old_answer" if dimmed else None):
            shown = look(run, records, case, over)
            headline(shown, sentence)
            views.draw(fields.view(state, "view", views.NAMES), shown)


def heading(run: Run, before: str = "", link: bool = True, why: bool = True, dimmed: bool = False) -> None:
    """Name, state, device and date of the run in one line, with the badge of a recorded one; ``why``: and why
    it did not finish. ``dimmed``: it is not what the current settings ask for, and the line begins so."""
    before = f"Result of an earlier run: {before}" if dimmed else before
    key = "old_answer_heading" if dimmed else None
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=key):
        st.markdown(f"**{before}{md(run_name(run))}**")
        if run.recorded:
            st.badge(f"recorded on {md(run.device_name)}", color="blue")
        if run.status != "done":
            status = "cancelling" if run.live and submit.cancelling(run.id) else run.status
            colour = {"failed": "red", "running": "green"}.get(status, "gray")
            st.badge(status_text(status), color=colour)
        opened = f" · [open run]({url.link('runs', run=run.id)})" if link else ""
        where = run.environment.get("device_name") or run.spec.get("device") or run.device_name
        st.caption(f"{md(str(where))} · {captions.when(run)}{opened}")  # a queued run knows no name yet
    told = run.reason and run.reason != f"{run.status} by user"  # which the badge says
    if why and told and run.status in ("failed", "interrupted", "cancelled"):
        st.warning(md(reason_text(run)))


def case_picker(state: url.State, names: list[str], run: Run, first: str = ALL) -> str:
    """Which case the bars and views show, or all of them: as curves where the run swept a parameter, else as
    a table of colours."""
    if len(names) < 2:
        return names[0] if names else ALL
    options = [ALL, *names]
    default = first if first in options else ALL
    key = state.seed(f"case/{run.id}/{default}", default)
    if state.opened and state.query.get("case") in options:
        st.session_state[key] = state.query["case"]
    if st.session_state[key] not in options:
        st.session_state[key] = default
    now = st.session_state[key]  # a long name is cut in the box
    chosen = st.selectbox("case", options, key=key, help=f"{glossary.of('case')} Now: {md(now)}.")
    state.keep("case", chosen, default)
    return chosen


def compared_with(state: url.State, run: Run, records: list[Record], usual: str | None = None) -> str | None:
    """What speed-ups are over: the run's baseline, or any other implementation that has a time in each case
    of ``records``, which are those on show; None where there is no choice. ``usual``: at first this one
    instead of the baseline, where it has.

    A choice is of one run (of one ``usual``) and outlasts drawings without it. The URL says it only when a
    page opens: later it still has that of the run before, until a drawing is done."""
    options, own = rebase.choices(records), baseline_of(run, records)
    if run.live or len(options) < 2 or own not in options:
        return None
    own = usual if usual in options else own
    scope = run.id if usual is None else f"{run.id}/{own}"
    kept = f"over/{scope}"
    if state.opened:
        state.scopes.add(scope)
        st.session_state.pop(kept, None)
    before = st.session_state.get(kept, own)
    key = fields.seeded(state, "over", options, before if before in options else own, scope=scope)
    st.session_state[kept] = chosen = st.selectbox(
        "compared with",
        options,
        key=key,
        format_func=short,
        width=220,
        filter_mode=None,  # a text that is no option would stay in the box and look chosen
    )
    state.keep("over", chosen, own)
    return chosen


def follow(run_id: str, case: str, compared: str, begun: bool = True) -> None:
    """The growing result of a running job, updated on its own. Where the page was drawn without a record (not
    ``begun``), the first one has it drawn once more."""

    def body(run: Run) -> None:
        records = run_data.records(run.id)
        if records and not begun:
            redraw.whole_page()
        if records:
            headline(look(run, records, case))
        else:
            st.caption(f"Results appear case by case, once all {compared} of a case are checked and timed.")

    jobs.follow(run_id, heading, body, cancel=True)


def previous(run_id: str) -> None:
    """An earlier run's headline, dimmed, until a new one has something to show."""
    if run_data.records(run_id):
        with st.container(key="previous_answer"):
            st.caption("Previous result:")
            brief(run_id)


def brief(run_id: str, case: str = ALL) -> None:
    """A run's name and its chart alone; a run without a record has none."""
    run, records = run_data.read(run_id), run_data.records(run_id)
    heading(run, why=False)
    if records:
        headline(look(run, records, case))


@st.fragment(run_every=2.0)
def _live_view(run_id: str, case: str, view: str) -> None:
    """The view under a running job's chart, with the records so far."""
    run, records = run_data.read(run_id), run_data.records(run_id)
    if records:
        views.draw(view, look(run, records, case))


def baseline_of(run: Run, records: list[Record]) -> str:
    """What the run was measured against."""
    return str(run.spec.get("baseline") or (records[0].impl if records else ""))


def look(run: Run, records: list[Record], case: str, over: str | None = None) -> views.Look:
    """What charts and views draw from: the case so named, else all; ``over``: another baseline than the
    run's."""
    baseline = baseline_of(run, records)
    if over not in (None, baseline):
        records, baseline = rebase.rebased(records, over), over
    groups = tables.cases(records)
    rows = groups.get(case) or list(groups.values())[-1]
    one = case in groups or len(groups) == 1
    dtype, impls = views.operands(records)
    subtitle = captions.context(run, clock=False, operands=f"{', '.join(impls)}: {dtype}" if impls else "")
    return views.Look(run, records, rows, baseline, subtitle, style.theme(), one)


def sentence_box(dimmed: bool = False, box=st):
    """Where ``headline`` puts its sentence, in ``box``: above cautions and choices, drawn before it is
    known. A part that is drawn again replaces it there."""
    return box.container(key="old_answer_sentence" if dimmed else None).empty()


def headline(look: views.Look, box=None) -> None:
    """The result as a sentence, in ``box``, and its chart: bars for one case; for all of them curves over the
    swept parameter, or the overview where no single parameter was swept."""
    text = md(sentences.result(look.rows, look.baseline, _measured(look)) + _operands(look))
    costs = [] if look.one_case else options.costs(look.rows)
    with box.container() if box else contextlib.nullcontext():
        st.markdown(f"**{text}**" if sentences.firm(look.rows, look.baseline) else text)
        if costs:
            st.caption(md(of_options.sentence(costs)))
    with st.container(horizontal=True, gap="small"):
        _missing(look)
        if costs:
            _options(look, costs)
    if look.baseline != baseline_of(look.run, look.records):
        st.caption(
            "Ratios of the medians; the intervals are made of those over the run's baseline: not paired."
        )
    fig = cached_chart.once(("headline", *look.key), lambda: _headline(look))
    wide = f"{elements.WIDE}-{look.run.id}" if _wide(look) else None
    elements.chart(fig, f"{look.run.id}-speedup", look.tidy, says=_says(look), wide=wide)


def _measured(look: views.Look) -> list[Record] | None:
    """The records over the run's own baseline, where another one was chosen."""
    own = look.baseline == baseline_of(look.run, look.records)
    return None if own else run_data.records(look.run.id)


def _operands(look: views.Look) -> str:
    """ " v1_hopper multiplies e4m3 operands, the others float16 ones.": what such a ratio compares."""
    dtype, impls = views.operands(look.rows)
    if not impls:
        return ""
    does = "multiplies" if len(impls) == 1 else "multiply"
    return f" {', '.join(impls)} {does} {dtype} operands, the others {look.rows[0].dtype} ones."


def _missing(look: views.Look) -> None:
    """Why each that has no time has none, in full: the chart has room for a line."""
    without = {r.impl: r for r in look.rows if r.status != "ok"}
    if without:
        have = "has" if len(without) == 1 else "have"
        with st.popover(f"Why {len(without)} {have} no time", type="tertiary"):
            lines = (f"**{md(short(name))}**, {r.status}: {md(r.reason)}" for name, r in without.items())
            st.markdown("\n\n".join(lines))


def _options(look: views.Look, costs: list[options.Cost]) -> None:
    """What each option costs each implementation."""
    names = " and ".join(dict.fromkeys(c.key for c in costs))
    with st.popover(f"What {names} costs, for each implementation", type="tertiary"):
        elements.table(of_options.table(costs), look.name("options"), why={})
        elements.note(
            "Ratios of medians: cases with and without are not sampled in turn, so none has an interval."
        )


def _says(look: views.Look) -> str:
    """How to read the headline chart."""
    terms = ("speed-up", "95 % interval", "inconclusive", "check")
    base = short(look.baseline)
    if look.one_case:
        text = f"One bar per implementation, fastest on top. Right of 1× is faster than {base}, left slower; "
        text += "the whiskers are the interval. Struck out: failed the check. Faint: inconclusive."
    elif sweep.swept_key(look.records):
        text = f"One curve per implementation over the swept parameter. Above 1× is faster than {base}; a "
        text += "gap is a case without a valid time."
    else:
        text = f"One cell per implementation and case: ▲ times faster than {base}, ▼ times slower, ≈ the "
        text += "same, ? inconclusive. Colour only where the difference is decided."
    return "\n\n".join([text, *(f"**{term}**: {glossary.of(term)}" for term in terms)])


def _wide(look: views.Look) -> bool:
    """Whether the chart has more columns than a narrow screen has room for."""
    cells = not look.one_case and not sweep.swept_key(look.records)
    return cells and len({r.impl for r in look.records}) > _WIDE


def _headline(look: views.Look) -> go.Figure:
    if look.one_case:
        return speedup.bars(look.case, look.baseline, look.subtitle, look.theme)
    key = sweep.swept_key(look.records)
    if key:
        return sweep.curves(look.records, key, "speed-up", look.baseline, look.subtitle, look.theme)
    return overview.cells(look.records, look.baseline, look.subtitle, look.theme)

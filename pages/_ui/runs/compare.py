"""Any number of runs against the first: whether they may be compared, then what is faster."""

from __future__ import annotations

import streamlit as st

from fusescope.analysis.compare import columns, conditions
from fusescope.analysis.compare.columns import Comparison, Source
from fusescope.charts import captions
from fusescope.charts.compared import differences, overall, pairs, undecided
from fusescope.charts.numbers import plural
from fusescope.core.errors import RunError
from fusescope.core.records import Run
from fusescope.store import compare, library
from pages._ui.answer import answer
from pages._ui.app import run_data, url
from pages._ui.forms import fields
from pages._ui.runs import run_library
from pages._ui.widgets import cell_text, elements, style
from pages._ui.widgets.text import md, run_name, sentence

_OFFERED = 200
_NAME = 420  # pixels of a name in the box, beside device and date
_CHOSEN, _KNOWN, _ADDED = "runs/compared", "runs/offered", "runs/add"
_CAUTIONS = 4  # shown; the others are one click away


def wanted(state: url.State) -> list[str] | None:
    """The ids in ?compare=A,B,…; None where it names no run. An unknown one is one sentence."""
    found = []
    for name in (state.query.get("compare") or "").split(","):
        if name.strip():
            try:
                found.append(library.find(name.strip()).name)
            except RunError as error:
                state.problems.append(f"{sentence(error)}.")
    return list(dict.fromkeys(found)) or None


def draw(state: url.State, run_ids: list[str]) -> None:
    """The comparison of the runs with the first of them."""
    st.page_link("pages/runs.py", label="‹ All runs", query_params=url.of_list("runs"))
    run_ids = _choose(state, run_ids)
    state.keep("compare", ",".join(run_ids))
    sources = [_source(run_id) for run_id in run_ids]
    for n, source in enumerate(sources):
        answer.heading(source.run, f"{pairs.letter(n)}{' (base)' if n == 0 else ''}: ", why=False)
    if len(sources) < 2:
        st.info("Add a second run above to compare it with this one.")
    answers, result = st.container(), st.container()
    by, left_out, columns_shown = _settings(state, sources)
    with answers:
        judged = {
            pairs.letter(n): conditions.judge(sources[0], other, left_out, ("A", pairs.letter(n)))
            for n, other in enumerate(sources[1:], 1)
        }
        for letter, found in judged.items():
            _comparable(found, letter)
    left_open = {s.run.id: one.left_open for s, one in zip(sources[1:], judged.values(), strict=True)}
    comparison = columns.compare(sources, by, left_out, columns_shown, left_open)
    if len(comparison.columns) < 2:
        st.info("One column has nothing to be compared with: choose other columns, or add a run.")
        return
    if comparison.by == "run" and len(sources) > 2:
        groups = conditions.groups(sources, list(judged.values()), left_out)
        result.markdown(f"**Overall: {md(overall.sentence(comparison, groups))}**")
    _result(comparison, sources, result)


def _choose(state: url.State, run_ids: list[str]) -> list[str]:
    """The runs to compare, changed on the page: the URL's, and others of the same kind and operator, found by
    the words that find them in the list. What is picked closes its box: the verdict is under it."""
    if state.opened or _CHOSEN not in st.session_state:
        st.session_state[_CHOSEN] = st.session_state[_KNOWN] = run_ids
    shown = st.session_state[_CHOSEN] or run_ids
    known = st.session_state[_KNOWN] = list(dict.fromkeys([*st.session_state[_KNOWN], *shown]))
    chosen = st.multiselect(
        "Runs to compare (the first is the base)",
        known,
        key=_CHOSEN,
        format_func=lambda run_id: _line(run_data.read(run_id)),
    )
    first = run_data.read(shown[0])
    left, right = st.columns([2, 3], gap="small")
    text = left.text_input("Search for a run to add", key="runs/add/text", help=run_library.WORDS).strip()
    found, total = library.runs(kind=first.kind, op=first.spec.get("op"), text=text or None, limit=_OFFERED)
    others = [run for run in found if run.id not in shown]
    named = cell_text.apart([run_name(run) for run in others], _NAME)
    lines = {run.id: _line(run, str(name)) for run, name in zip(others, named, strict=True)}
    right.selectbox(
        f"Add a run ({total - len(found) + len(lines):,} of this kind and operator{' match' * bool(text)})",
        list(lines),
        index=None,
        key=_ADDED,
        format_func=lambda run_id: lines.get(run_id, run_id),
        placeholder="choose a run" if lines else "no other run matches",
        filter_mode=None,
        on_change=_add,
    )
    return chosen or run_ids


def _add() -> None:
    """A callback: the run that was picked joins those compared, and the box is free for the next."""
    if added := st.session_state[_ADDED]:
        st.session_state[_CHOSEN] = [*dict.fromkeys([*st.session_state[_CHOSEN], added])]
    st.session_state[_ADDED] = None


def _line(run: Run, name: str = "") -> str:
    return f"{name or run_name(run)} · {captions.short_device(run.device_name)} · {captions.when(run)}"


def _source(run_id: str) -> Source:
    path = library.find(run_id)
    clock = _clock(str(path), run_data.stamp(path, "samples.jsonl"))
    return Source(run_data.read(run_id), tuple(run_data.records(run_id)), clock)


@st.cache_data(max_entries=200, show_spinner=False)
def _clock(path: str, stamp: tuple[int, int]) -> float | None:
    return compare.median_clock(library.find(path.rpartition("/")[2]))


def _comparable(found: conditions.Answer, letter: str) -> None:
    """Yes or no first, then why; after a yes, what to be careful about."""
    cautions = found.cautions if found.yes else ()
    failed = found.control is not None and found.control.failed
    box = st.error if not found.yes else st.warning if cautions or found.part or failed else st.success
    control = f" {found.control.text}." if found.yes and found.control and not failed else ""
    shown = cautions[:_CAUTIONS]
    text = f"**May {letter} be compared with A? {md(found.text)}**{md(control)}"
    box(text + (f"\n\nCautions: {md('; '.join(shown))}." if shown else ""))
    if more := cautions[_CAUTIONS:]:
        with st.expander(f"{plural(len(more), 'more caution')} about {letter}"):
            st.markdown("\n".join(f"- {md(line)}" for line in more))


def _settings(state: url.State, sources: list[Source]) -> tuple[str, list[str], list[str]]:
    """What columns stand for, what cases need not have in common, and the columns to show (all where
    empty)."""
    known = columns.keys(sources)
    out = state.seed("out", [], lambda text: _all_of(text, known))
    st.session_state[out] = [k for k in st.session_state[out] if k in known]
    left, middle, right = st.columns([1, 2, 3], gap="small")
    by = fields.pick(state, "by", "columns by", columns.BY, box=left)
    left_out = middle.multiselect(
        "leave out",
        known,
        key=out,
        placeholder="nothing",
        help="Cases that differ only in these are one row; where their values differ, the workload does, and "
        "there is no verdict",
    )
    state.keep("out", ",".join(left_out))
    if by == "run":
        return by, left_out, []
    there = columns.values(sources, by)
    key = state.seed(f"columns/{by}", [])
    if state.opened and state.query.get("columns"):
        st.session_state[key] = state.query["columns"].split(";")
    st.session_state[key] = [c for c in st.session_state[key] if c in there]
    chosen = right.multiselect("columns (the first is the base)", there, key=key, placeholder="all")
    state.keep("columns", ";".join(chosen))
    return by, left_out, chosen


def _all_of(text: str, known: list[str]) -> list[str]:
    names = [name for name in text.split(",") if name]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{unknown[0]} is not one of {', '.join(known)}")
    return names


def _result(comparison: Comparison, sources: list[Source], box) -> None:
    """What each column says against the base, in ``box``; under the settings the chart and the table."""
    names = pairs.names(comparison)
    for n in range(1, len(names)):
        if said := pairs.sentence(comparison, n, names):
            box.markdown(f"**{md(said)}**")
        if said := undecided.sentence(comparison, n):
            box.caption(md(said))
        if said := differences.sentence(comparison, n, names):
            box.markdown(md(said))
    called = " · ".join(
        f"{pairs.letter(n)}: {captions.short_device(s.run.device_name)} {captions.when(s.run)}"
        for n, s in enumerate(sources)
    )
    name = "compare-" + "-".join(s.run.id for s in sources)[:120] + f"-{comparison.by}"
    for unlike in (False, True):  # a chart for verdicts, one for what is none; else the sentences say so
        part = comparison.differences if unlike else comparison.ratios
        if any(part(n) for n in range(1, len(names))):
            fig = pairs.bars(comparison, names, called, style.theme(), unlike)
            elements.chart(fig, f"{name}-unlike" if unlike else name, lambda: pairs.tidy(comparison))
    elements.table(
        pairs.table(comparison, names),
        f"{name}-table",
        lambda: pairs.tidy(comparison),
        why=lambda row, column: pairs.why(comparison, names, row, column),
    )
    if comparison.by != "run" and len(sources) > 1:
        elements.note("Where several runs have a result for a cell, that of the newest counts.")
    elements.note(
        "Runs were not sampled in turn: an interval between two is the widest that the 95 % intervals of "
        "both medians allow, and 5 % wider at least: so much does unchanged code differ between runs. It is "
        "weaker evidence than a comparison within one run."
    )

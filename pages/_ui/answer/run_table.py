"""A list of runs as a table whose lines open a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd
import streamlit as st
from pandas.io.formats.style import Styler

from fusescope.analysis.profile import device_time
from fusescope.analysis.profile.verdict import in_short, verdict
from fusescope.charts import captions, numbers, sentences
from fusescope.charts.colours import short
from fusescope.charts.findings import brief
from fusescope.core.errors import RunError
from fusescope.core.records import Run
from fusescope.search import sessions
from fusescope.search.learning.found import NAME
from fusescope.store import library, profile, tables, timeline
from pages._ui.answer import run_facts, selfcheck
from pages._ui.app import run_data, url
from pages._ui.widgets import cell_text, elements, html_table, screen
from pages._ui.widgets.text import md, run_name, status_text

_OPEN, _OPENED = "open", "runs/opened"
_BUTTON = 54  # pixels of its column
_COMPARISONS = ("bench", "model", "parallel")
_UNREADABLE = "unreadable: open it to see why"
_TOLD = ("device", "dtype", "mask", "source")
_CUT = "Double-click a cell to read all of it."
_ODD = (RunError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""What a file from elsewhere may raise: it costs its own line alone."""


def frame(found: Sequence[Run], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """One line per run; the first column is a link to it. columns: of ``COLUMNS``; by default those that tell
    these runs apart."""
    names = list(_VALUES) if columns is None else [n for n in _VALUES if n in columns]
    data = {name: [_read(_VALUES[name], run) for run in found] for name in names}
    if columns is None:
        shown = {name for name, values in data.items() if name in _ALWAYS or len(set(values)) > 1}
        # a ratio names what it is over, even where that is the same in all
        shown = shown | {"over"} if "best speed-up" in shown else shown - {"over"}
        data = {name: values for name, values in data.items() if name in shown}
    return pd.DataFrame({"open": [url.link("runs", run=r.id) for r in found]} | data)


def draw(found: list[Run], key: str) -> None:
    """The table without a selection."""
    html_table.draw(frame(found, _BRIEF).fillna(""), {}, key, link="open")


def select(
    found: list[Run], key: str, ticked: Sequence[str] = (), columns: Sequence[str] | None = None
) -> list[str]:
    """The table with lines to select, of which those of the runs ``ticked`` are, and a button on each that
    opens its run (``opened``); the ids that now are selected."""
    rows = [n for n, run in enumerate(found) if run.id in ticked]
    ids = tuple(run.id for run in found)
    own = f"{key}/{hash(ids)}"  # a tick belongs to a run, not to a line
    data, widths = frame(found, columns).assign(open=_OPEN), _WIDTHS
    if columns is None and screen.narrow():
        data, widths = _decisive_first(data), _WIDTHS | _NARROW_WIDTHS
        rest = [name for name in data.columns if name not in (_OPEN, *_DECISIVE)]
        elements.note(f"Swipe the table sideways for {', '.join(rest)}.")
    event = st.dataframe(
        _shortened(data, widths),
        hide_index=True,
        width="stretch",
        key=own,
        column_config=_config(f"{own}/open", ids, widths),
        on_select="rerun",
        selection_mode="multi-row",
        selection_default={"selection": {"rows": rows}},
        row_height=32,
        height="content",
        placeholder="",
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        said = [_CUT] if len(found) else []
        if columns is None and len(found) > 1 and (same := _same_in_all(found, data)):
            said.insert(0, f"The same in all lines: {same}.")
        st.caption(md(" ".join(said)), width="stretch")
        elements.csv(
            lambda: frame(found, columns).drop(columns="open").assign(id=[r.id for r in found]), "runs"
        )
    return [found[i].id for i in event.selection.rows if i < len(found)]


def opened() -> str | None:
    """The run whose button was clicked since the last drawing."""
    return st.session_state.pop(_OPENED, None)


def _opens(key: str, ids: Sequence[str]) -> None:
    """A callback: a page is left from its own script, not from here."""
    st.session_state[_OPENED] = ids[st.session_state[key]["row"]]


def _read(value: Callable[[Run], object], run: Run) -> object:
    try:
        return value(run)
    except _ODD:
        return None


def _result(run: Run) -> str:
    """What a comparison or a search found, what a self-check counted, or what limits a profiled program;
    else how the run ended, where that was early: its column may be out of sight."""
    return _found(run) or ("" if run.status == "done" or run.live else status_text(run.status))


def _found(run: Run) -> str:
    """ "" for other kinds, and for sweeps, whose tens of thousands of records a list does not read."""
    try:
        path = library.find(run.id)
    except RunError:
        return ""  # it was deleted between listing and drawing
    try:
        if run.kind in _COMPARISONS:
            return _comparison(run.id, _baseline(run), run_data.stamp(path, "results.jsonl"))[0]
        if run.kind == "search":
            return _scheme(run.id, run_data.stamp(path, f"artifacts/{NAME}"))
        if run.kind == selfcheck.KIND:
            return "" if run.live else selfcheck.counted(tables.read(path, selfcheck.KIND))
        return _limit(str(path), run_data.stamp(path, "artifacts/summary.json"))
    except _ODD:
        return _UNREADABLE


def _best(run: Run) -> float | None:
    """The largest speed-up that a comparison proved."""
    if run.kind not in _COMPARISONS:
        return None
    stamp = run_data.stamp(library.find(run.id), "results.jsonl")
    return numbers.round3(_comparison(run.id, _baseline(run), stamp)[1])


def _over(run: Run) -> str:
    """What that is over."""
    return short(_baseline(run)) if _best(run) is not None else ""


def _baseline(run: Run) -> str:
    return str(run.spec.get("baseline") or "")


@st.cache_data(max_entries=2000, show_spinner=False)
def _comparison(run_id: str, baseline: str, stamp: tuple[int, int]) -> tuple[str, float | None]:
    records = run_data.records(run_id)
    if not records:
        return "", None
    baseline = baseline or records[0].impl
    return brief.in_short(records, baseline), sentences.best(records, baseline)


@st.cache_data(max_entries=2000, show_spinner=False)
def _scheme(run_id: str, stamp: tuple[int, int]) -> str:
    result = (sessions.found(run_id) or {}).get("result")
    if not result:
        return ""
    gain = (result.get("speedups") or {}).get("unfused")
    faster = f"{numbers.ratio(gain['median'])} unfused, " if gain and gain["verdict"] == "faster" else ""
    return faster + numbers.time(result["ms"])


@st.cache_data(max_entries=2000, show_spinner=False)
def _limit(path: str, stamp: tuple[int, int]) -> str:
    folder = Path(path)
    summary = profile.summary(folder)
    if not summary or summary.get("source") == "snapshot":  # no profile, or one of memory alone
        return ""
    if summary.get("ranks"):
        return f"{len(summary['ranks'])} ranks"
    ncu = profile.rows(folder, "ncu_kernels") if "ncu_kernels" in profile.names(folder) else []
    parts = device_time.read(timeline.device_activities(folder))
    return in_short(verdict(summary, ncu, parts=parts))


_VALUES: dict[str, Callable[[Run], object]] = {
    "run": run_name,
    "result": _result,
    "best speed-up": _best,
    "over": _over,
    "shapes": run_facts.shapes,
    "mask": run_facts.mask,
    "dtype": lambda run: str(run.spec.get("dtype") or ""),
    "device": lambda run: captions.short_device(run.device_name),
    "when": captions.when,
    "took": lambda run: "" if run_facts.seconds(run) is None else numbers.seconds(run_facts.seconds(run)),
    "tags": lambda run: ", ".join(run.tags),
    "status": lambda run: status_text(run.status),
    "kind": lambda run: run.kind,
    "source": run_facts.source,
    "id": lambda run: run.id,
}
COLUMNS = tuple(_VALUES)
"""What a list of runs can show."""
_ALWAYS = ("run", "result", "when")
_BRIEF = ("run", "result", "shapes", "status", "when")


_WIDTHS = {"run": 272, "result": 214, "shapes": 150, "mask": 68, "dtype": 62, "took": 82, "status": 90}
_WIDTHS |= {"over": 54, "when": 122, "device": 76, "kind": 60, "source": 90, "tags": 70}
_DECISIVE = ("run", "best speed-up", "over")
"""The columns of a narrow screen; the others are out of sight behind them."""
_NARROW_WIDTHS = {"run": 140}
_HELP = {"run": "A name that ends in … is said in full above the table once its run is selected"}
_SIDES = 16  # pixels of a cell that hold no text
_SPARE = 8  # of a long name, whose letters are only estimated


def _decisive_first(data: pd.DataFrame) -> pd.DataFrame:
    first = [name for name in (_OPEN, *_DECISIVE) if name in data.columns]
    return data[[*first, *(name for name in data.columns if name not in first)]]


def _same_in_all(found: Sequence[Run], shown: pd.DataFrame) -> str:
    """What is not shown since all lines have it: "device H100, dtype float16"."""
    said = []
    for name in _TOLD:
        values = {_read(_VALUES[name], run) for run in found} if name not in shown.columns else set()
        said += [f"{name} {value}" for value in values if len(values) == 1 and value]
    return ", ".join(said)


def _shortened(data: pd.DataFrame, widths: Mapping[str, int]) -> Styler:
    """The table as the grid draws it: each text as far as its column has room, and whole where it is opened
    or copied."""
    fitting = _fitting(data, widths)
    texts = [name for name in data.columns if name in widths]
    styled = data.style
    for name in texts:
        shown = dict(zip(data[name], fitting[name], strict=True))
        styled = styled.format(lambda text, shown=shown: shown.get(text, text), subset=[name], na_rep="")
    return styled


def _fitting(data: pd.DataFrame, widths: Mapping[str, int]) -> pd.DataFrame:
    """The texts as far as their columns have room; names keep where they differ, results what was counted."""
    wide = {name: widths[name] - _SIDES for name in data.columns if name in widths}
    fitting = {name: data[name].map(partial(cell_text.cut, most=most)) for name, most in wide.items()}
    if "run" in wide:
        fitting["run"] = cell_text.apart(list(data["run"]), wide["run"] - _SPARE)
    if "result" in wide:
        fitting["result"] = [_counted(text, wide["result"]) for text in data["result"]]
    return data.assign(**fitting)


def _counted(text: object, most: int) -> object:
    """A result with its counts: "compile-red… fastest in 1 of 2, 1 tied"."""
    _, mark, counts = str(text).partition(" fastest in ")
    return cell_text.keep_end(text, mark + counts, most, 0.85) if mark else cell_text.cut(text, most)


def _config(key: str, ids: Sequence[str], widths: Mapping[str, int]) -> dict:
    """``key``: of the clicks on the buttons that open the runs ``ids``. A link would open a tab of its own,
    on the second click."""
    return {
        "open": st.column_config.ButtonColumn(
            "", type="tertiary", width=_BUTTON, on_click=_opens, args=(key, ids), key=key
        ),
        "best speed-up": st.column_config.NumberColumn(
            "best",
            help="largest speed-up over the baseline that was proven in any case",
            format="%.3g×",
            width=58,
        ),
        **{
            name: st.column_config.TextColumn(name, width=width, help=_HELP.get(name))
            for name, width in widths.items()
        },
    }

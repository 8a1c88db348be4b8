"""The views under the headline chart: one function each, drawn only when chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from fusescope import models, ops
from fusescope.analysis import roofline as at_roof
from fusescope.charts import numbers, tables
from fusescope.charts.bench import accuracy, distribution, history, roofline, sweep
from fusescope.charts.colours import kind, short
from fusescope.core import command, same_code
from fusescope.core.records import Record, Run
from fusescope.core.schema.cases import value
from pages._ui.answer import case_actions
from pages._ui.answer.edit_loop import earlier
from pages._ui.app import cached_chart, run_data
from pages._ui.widgets import elements


@dataclass(frozen=True)
class Look:
    """What a view draws from: all records of the run, those of the chosen case, subtitle and theme."""

    run: Run
    records: list[Record]
    case: list[Record]
    baseline: str
    subtitle: str
    theme: str
    one_case: bool

    @property
    def rows(self) -> list[Record]:
        """The records on show, of the case or all, in the order of the chart."""
        return tables.ordered(self.case if self.one_case else self.records)

    @property
    def key(self) -> tuple:
        """Everything that a chart depends on: records are only ever added to a run."""
        look = (self.baseline, self.subtitle, self.theme, self.one_case)
        return self.run.id, len(self.records), self.case[0].case_key, *look

    def tidy(self) -> pd.DataFrame:
        """The records on show as a table for CSV."""
        return tables.tidy(self.rows, self.baseline)

    def name(self, view: str) -> str:
        """The file name of what the view saves."""
        return f"{self.run.id}-{view}"


def draw(view: str, look: Look) -> None:
    """Draw the view of that name."""
    _VIEWS[view](look)


def _table(look: Look) -> None:
    readable = cached_chart.once(("records", *look.key), lambda: tables.readable(look.rows, look.baseline))
    elements.table(
        readable,
        look.name("records"),
        look.tidy,
        why=tables.why(look.rows, look.baseline),
        about={"implementation": ideas(look.rows[0].op, look.rows[0].device)},
    )


def _times(look: Look) -> None:
    if not look.one_case:
        st.caption(f"Samples of the last case{_case(look)}; choose another above.")
    raw = run_data.samples(look.run.id, look.case[0].case_key)
    modes = {s["mode"] for s in raw}
    pair = ("graph", "graph_cold") if "graph" in modes or "graph_cold" in modes else ("eager", "eager_cold")
    fig = cached_chart.once(
        ("times", len(raw), *look.key), lambda: distribution.strips(raw, pair, look.subtitle, look.theme)
    )
    columns = ["impl", "mode", "ms"]
    rows = lambda: pd.DataFrame([(s["impl"], s["mode"], ms) for s in raw for ms in s["ms"]], columns=columns)  # noqa: E731
    elements.chart(fig, look.name("samples"), rows)


def _sweep(look: Look) -> None:
    key = sweep.swept_key(look.records)
    if key is None:
        st.caption("This run is not a sweep; choose a parameter under Sweep and run to see curves.")
        return
    quantity = st.segmented_control(
        "quantity", list(sweep.QUANTITIES), default="latency", key="views/quantity", required=True
    )
    fig = cached_chart.once(
        ("sweep", quantity, *look.key),
        lambda: sweep.curves(look.records, key, quantity, look.baseline, look.subtitle, look.theme),
    )
    elements.chart(fig, look.name(f"sweep-{key}"), lambda: tables.tidy(look.records, look.baseline))


def _roofline(look: Look) -> None:
    ceilings = look.run.environment.get("ceilings") or {}
    first = look.rows[0]
    unit = _unit(first.op, json.dumps(dict(first.case)), first.dtype)
    fig = cached_chart.once(
        ("roofline", *look.key),
        lambda: roofline.plot(look.rows, ceilings, look.baseline, unit, look.subtitle, look.theme),
    )
    says = (
        "Ceilings are measured on the run's device, not taken from a data sheet. Bytes = minimum "
        "(compulsory) traffic, so a point above the slope was served by a cache."
    )
    elements.chart(fig, look.name("roofline"), look.tidy, says=says)
    if text := _shares(look, ceilings, unit):
        elements.note(text)


def _shares(look: Look, ceilings: Mapping, unit: str) -> str:
    """How much of the roof the results of a case reach, the highest first; "" where it was not measured."""
    try:
        roof = at_roof.ceiling(ceilings, look.case[0].dtype, unit)
    except ValueError:
        return ""
    placed = [(p, r) for r in look.case if r.status == "ok" and (p := at_roof.place(r, roof))]
    if not placed:
        return ""
    placed.sort(key=lambda pair: -pair[0].share)
    limit = "copy bandwidth" if placed[0][0].bound == "memory" else f"{unit} rate"
    of = "" if look.one_case else f" Of the last case{_case(look)}."
    listed = ", ".join(f"{short(r.impl)} {numbers.percent(p.share)}" for p, r in placed)
    return f"Share of the roof, here the measured {limit}: {listed}.{of}"


def _accuracy(look: Look) -> None:
    first = look.case[0]
    allowed = ops.tolerance(first.op, dict(first.case), first.dtype)
    fig = cached_chart.once(
        ("accuracy", *look.key),
        lambda: accuracy.dots(look.case, (allowed.absolute, allowed.relative), look.subtitle, look.theme),
    )
    elements.chart(fig, look.name("accuracy"), lambda: tables.tidy(look.case, look.baseline))
    elements.note(
        "Worst over fresh random inputs, contiguous and strided, with the output pre-filled with NaN. "
        f"Tolerance: {allowed.reason}."
    )
    if not look.one_case:
        elements.note(f"Shown for the last case{_case(look)}.")


def _resources(look: Look) -> None:
    rows = []
    for r in look.case:
        if kind(r.impl) == "peer":
            continue
        q = r.resources
        rows.append(
            {
                "kernel": short(r.impl),
                "registers": q and q.registers,
                "static shared (B)": q and q.shared,
                "spills (B)": q and q.spills,
                "theoretical occupancy (%)": 100 * q.occupancy if q and q.occupancy is not None else None,
                "source hash": r.source_hash,
            }
        )
    if not rows:
        st.caption("This run has no kernel of ours; compiler figures of peers are unknown.")
        return
    table = tables.whole(pd.DataFrame(rows), "registers", "static shared (B)", "spills (B)")
    reason = (
        "CPU kernels have no registers per thread and no shared memory"
        if str(look.run.spec.get("device")) == "cpu"
        else "the kernel was not built for this device"
    )
    elements.table(table, look.name("resources"), why=dict.fromkeys(table.columns, reason))
    elements.note(
        "Low occupancy limits latency hiding; high occupancy alone does not mean fast. The Build page "
        "has an occupancy "
        "calculator."
    )


def _history(look: Look) -> None:
    ours = [r for r in look.case if kind(r.impl) != "peer"]
    if not ours:
        st.caption("History follows our kernels and yours by source; this case has none.")
        return
    impl = st.selectbox("kernel", [r.impl for r in ours], format_func=short, key="views/history")
    record = next(r for r in ours if r.impl == impl)
    edits = history.order(earlier(look.run, record))
    elements.chart(history.steps(edits, impl, look.subtitle, look.theme), look.name("history"))
    previous, lines = None, []
    for e in edits:
        if previous and previous.record.source_hash == e.record.source_hash:
            continue
        changed = history.resource_changes(previous.record, e.record) if previous else []
        if previous and same_code.same(e.record.op, impl, previous.record.source_hash, e.record.source_hash):
            changed = ["source edited, same machine code"]
        lines.append(
            {
                "source": e.record.source_hash,
                "first run": e.run.id,
                "median (ms)": e.record.ms,
                "status": e.record.status,
                "compiler": ", ".join(changed) or history.resources_text(e.record),
            }
        )
        previous = e
    if lines:
        table = pd.DataFrame(lines[::-1])
        elements.table(
            table,
            look.name("edits"),
            why=lambda row, column: f"{table['status'][row]}, so it has no latency",
        )


def _reproduce(look: Look) -> None:
    if line := command.again("bench", look.run.spec):
        st.code(line, language=None, wrap_lines=True)
    with st.expander("Full configuration and environment"):
        st.json({"spec": dict(look.run.spec), "environment": dict(look.run.environment)}, expanded=1)


def _trace(look: Look) -> None:
    case_actions.draw(look.run, look.case)


def _case(look: Look) -> str:
    keys = tables.varying(look.records)
    return " (" + ", ".join(f"{k}={value(look.case[0].case, k)}" for k in keys) + ")"


@st.cache_data(max_entries=64, show_spinner=False)
def ideas(op: str, device: str) -> dict[str, str]:
    """What each implementation of an operator, or execution mode of a model, is; empty where the operator is
    not known here."""
    try:
        if op.startswith("model:"):
            known = models.modes(models.named(op), device)
        else:
            known = ops.implementations(op, device)
    except (ValueError, OSError):
        return {}
    return {one.name: one.idea for one in known}


def operands(records: Sequence[Record]) -> tuple[str, list[str]]:
    """(the dtype in which some implementations of a run multiply although it is not that of its cases, their
    names); of an operator that is not known here, or has no such dtype, none."""
    try:
        operator = ops.load(records[0].op) if records else None
    except (ValueError, OSError):
        operator = None
    dtype = getattr(operator, "OPERANDS", "")
    impls = list(dict.fromkeys(r.impl for r in records)) if dtype else []
    return dtype, [short(i) for i in impls if kind(i) == "ours" and i not in operator.PEERS]


@st.cache_data(max_entries=256, show_spinner=False)
def _unit(op: str, case: str, dtype: str) -> str:
    return ops.load(op).cost(json.loads(case), dtype).unit


_VIEWS = {
    "Table": _table,
    "Times": _times,
    "Sweep": _sweep,
    "Roofline": _roofline,
    "Accuracy": _accuracy,
    "Resources": _resources,
    "History": _history,
    "Trace": _trace,
    "Reproduce": _reproduce,
}
NAMES = list(_VIEWS)

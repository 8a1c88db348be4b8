"""A run as one HTML file that opens anywhere, offline: the answer, its charts (alive), tables, environment,
how to repeat it."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from fusescope.charts import captions, numbers, tables, template
from fusescope.charts.bench import accuracy, distribution, overview, roofline, speedup, sweep
from fusescope.charts.escape import unlinked
from fusescope.charts.fusion import report
from fusescope.core.records import Record, Run

_STYLE = """
body { font-family: 'Source Sans 3', 'Segoe UI', 'Helvetica Neue', Arial, sans-serif; color: #1F2933;
       background: #fff; max-width: 1060px; margin: 2rem auto; padding: 0 1rem; line-height: 1.45; }
h1 { font-size: 1.6rem; margin-bottom: .2rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
.muted { color: #52606D }
.badge { background: #0072B2; color: #fff; border-radius: 4px; padding: .1rem .5rem; font-size: .85rem }
table { border-collapse: collapse; font-size: .86rem; width: 100%; display: block; overflow-x: auto }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #E4E7EB; text-align: left; white-space: nowrap }
td.n { text-align: right; font-variant-numeric: tabular-nums }
pre { background: #F3F5F7; padding: .8rem; overflow-x: auto; white-space: pre-wrap }
"""


def page(
    run: Run,
    records: list[Record],
    samples: Iterable[dict] = (),
    command: str = "",
    unit: str = "matrix",
    title: str = "",
) -> str:
    """The whole file as text. ``samples``: lines of samples.jsonl; ``command``: what measures it again;
    ``unit``: see roofline; ``title``: the run's name where it has no title.

    About 5 MB, because plotly's library is inside. Everything of the run is escaped: a run may come from
    anywhere.
    """
    baseline = str(run.spec.get("baseline") or (records[0].impl if records else ""))
    parts = [
        f"<h1>{_text(title or run.title or run.id)}</h1>",
        f"<p class='muted'>{_text(captions.context(run))} · run {_text(run.id)}</p>",
    ]
    if run.recorded:
        parts.append(f"<p><span class='badge'>recorded on {_text(run.device_name)}</span></p>")
    if run.status != "done":
        parts.append(f"<p><b>{_text(run.status)}</b>{': ' + _text(run.reason) if run.reason else ''}</p>")
    if run.notes:
        parts.append(f"<p>{_text(run.notes)}</p>")
    parts += [
        f"<h2>{_text(title)}</h2>{content}"
        for title, content in _contents(run, records, samples, baseline, unit)
    ]
    if command:
        parts.append(f"<h2>Reproduce</h2><pre>{_text(command)}</pre>")
    parts.append(f"<h2>Environment</h2><pre>{_text(json.dumps(dict(run.environment), indent=1))}</pre>")
    script = f"<script>{get_plotlyjs()}</script>" if records else ""
    return (
        "<!doctype html><html lang='en'><head><meta "
        f"charset='utf-8'><title>{_text(title or run.title or run.id)} · FuseScope</title>"
        f"<style>{_STYLE}</style>{script}</head><body>{''.join(parts)}</body></html>"
    )


def _contents(
    run: Run, records: list[Record], samples: Iterable[dict], baseline: str, unit: str
) -> Iterable[tuple[str, str]]:
    """The run's own sections as HTML: of thousands of fusion schemes others than of a comparison."""
    if run.kind not in report.KINDS or not records:
        yield from _sections(run, records, list(samples), baseline, unit)
        return
    for number, (title, content) in enumerate(
        report.sections(run.kind, records, html.escape(captions.context(run)))
    ):
        if isinstance(content, go.Figure):
            yield title, _chart(content, f"{run.id}-{number}")
        else:
            yield title, _table(content) if isinstance(content, pd.DataFrame) else f"<p>{_text(content)}</p>"


def _sections(
    run: Run, records: list[Record], samples: list[dict], baseline: str, unit: str
) -> Iterable[tuple[str, str]]:
    subtitle = html.escape(captions.context(run))
    if not records:
        yield "Records", "<p>This run was cancelled before any result.</p>"
        return
    key = sweep.swept_key(records)
    if key:
        yield (
            "Speed-up",
            _chart(sweep.curves(records, key, "speed-up", baseline, subtitle), f"{run.id}-speedup"),
        )
        yield (
            "Latency",
            _chart(sweep.curves(records, key, "latency", baseline, subtitle), f"{run.id}-latency"),
        )
    elif len(tables.cases(records)) > 1:
        yield "Overview", _chart(overview.cells(records, baseline, subtitle), f"{run.id}-overview")
    for name, rows in tables.cases(records).items():
        title = "Speed-up" if name == "the case" else f"Speed-up at {name}"
        yield (
            title,
            _chart(speedup.bars(rows, baseline, subtitle), f"{run.id}-{len(name)}")
            + _table(tables.readable(tables.ordered(rows), baseline)),
        )
    last = list(tables.cases(records).values())[-1]
    raw = [s for s in samples if s.get("case_key") == last[0].case_key]
    if raw:
        modes = {s["mode"] for s in raw}
        pair = ("graph", "graph_cold") if modes & {"graph", "graph_cold"} else ("eager", "eager_cold")
        yield (
            "Samples" + (" of the last case" if key else ""),
            _chart(distribution.strips(raw, pair, subtitle), f"{run.id}-samples"),
        )
    yield (
        "Accuracy" + (" of the last case" if key else ""),
        _chart(accuracy.dots(last, None, subtitle), f"{run.id}-accuracy"),
    )
    ceilings = run.environment.get("ceilings") or {}
    yield "Roofline", _chart(roofline.plot(records, ceilings, baseline, unit, subtitle), f"{run.id}-roofline")


def _chart(fig: go.Figure, name: str) -> str:
    return unlinked(fig).to_html(full_html=False, include_plotlyjs=False, config=template.config(name, "svg"))


def _table(data: pd.DataFrame) -> str:
    data = data.dropna(axis="columns", how="all")
    head = "".join(f"<th>{_text(c)}</th>" for c in data.columns)
    lines = []
    for row in data.itertuples(index=False):
        cells = []
        for value in row:
            number = isinstance(value, int | float | np.number)
            missing = value is None or value is pd.NA or (number and value != value)
            shown = (
                numbers.NA if missing else numbers.three(value) if isinstance(value, float) else str(value)
            )
            cells.append(f"<td{' class=n' if number else ''}>{_text(shown)}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _text(value) -> str:
    return html.escape(str(value))

"""Where the time of a model goes by part of a layer: a bar per execution mode, its parts one after
another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import SERIES, short
from fusescope.charts.escape import text_on
from fusescope.core.records import Record

PARTS = {
    "embedding": SERIES[7],
    "qkv": SERIES[0],
    "attention": SERIES[1],
    "output": SERIES[3],
    "ffn": SERIES[2],
    "norm": SERIES[5],
    "head": SERIES[4],
    "other": "#A9B1BA",
}
"""One colour per part, in the order of a forward pass."""
_ROW = 58


def bars(
    records: Sequence[Record], share: bool = False, subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """``records``: of one case, with extra["parts"]: {part: {"ms", "share"}}; ``share``: of the bar's whole
    instead of ms."""
    rows = [(r, parts) for r in records if (parts := of(r))]
    if not rows:
        return template.empty("No execution mode of this run was measured part by part.", theme)
    rows.reverse()
    unit, factor = numbers.time_unit(sum(p["ms"] for p in parts.values()) for _, parts in rows)
    what = "share of a profiled pass" if share else "a profiled pass, not a latency"
    fig = template.figure(
        "Time breakdown by layer part", template.join(subtitle, what), theme, 150 + _ROW * len(rows)
    )
    seen = [p for p in PARTS if any(p in parts for _, parts in rows)]
    modules = [p for p in dict.fromkeys(p for _, parts in rows for p in parts) if p not in PARTS]
    palette = list(PARTS.values())
    colours = PARTS | {p: palette[n % len(palette)] for n, p in enumerate(modules)}
    seen += modules  # of a model by its config.json, in the order of a forward pass
    for part in seen:
        x = [_width(parts, part, share, factor) for _, parts in rows]
        fig.add_bar(
            y=[r.impl for r, _ in rows],
            x=x,
            name=part,
            orientation="h",
            width=0.5,
            marker=dict(color=colours[part]),
            text=[
                part if v and v > 0.09 * _whole(parts, share, factor) else ""
                for v, (_, parts) in zip(x, rows, strict=True)
            ],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont=dict(color=text_on(colours[part]), size=12),
            hovertext=[_hover(r, parts, part) for r, parts in rows],
            hoverinfo="text",
        )
    totals = {r.impl: sum(p["ms"] for p in parts.values()) * factor for r, parts in rows}
    named = {
        impl: (f"<b>{short(impl)}</b>", f"{numbers.three(total)} {unit} total")
        for impl, total in totals.items()
    }
    axes.row_labels(fig, named, 23, theme)
    fig.update_layout(
        barmode="stack",
        showlegend=True,
        uniformtext=dict(minsize=11, mode="hide"),
        margin=dict(l=18, b=90),
        legend=dict(
            orientation="h",
            y=0.01,
            yanchor="bottom",
            x=0,
            yref="container",
            traceorder="normal",
            font=dict(size=12),
        ),
    )
    fig.update_xaxes(title_text="share (%)" if share else f"time ({unit})", rangemode="tozero")
    axes.named_rows(fig, rows)
    return fig


def of(record: Record) -> Mapping[str, Mapping[str, float]]:
    """{part: {"ms", "share"}} of a record, empty where its time was not divided."""
    parts = (record.extra or {}).get("parts") or {}
    return {k: v for k, v in parts.items() if v and v.get("ms")}


def _width(parts, part: str, share: bool, factor: float) -> float:
    value = parts.get(part, {}).get("ms", 0.0)
    return 100 * value / sum(p["ms"] for p in parts.values()) if share else value * factor


def _whole(parts, share: bool, factor: float) -> float:
    return 100.0 if share else factor * sum(p["ms"] for p in parts.values())


def _hover(record: Record, parts, part: str) -> str:
    if part not in parts:
        return ""
    total = sum(p["ms"] for p in parts.values())
    ms = parts[part]["ms"]
    return f"<b>{short(record.impl)}</b> {part}<br>{numbers.time(ms)}, {numbers.percent(ms / total)}"

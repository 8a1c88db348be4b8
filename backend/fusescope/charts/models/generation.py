"""Throughput over latency of a model that generates: a curve per execution mode, a point per batch."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import colour, marker, short
from fusescope.charts.models import quantised
from fusescope.core.records import Record


def points(records: Sequence[Record]) -> dict[str, list[tuple[Record, float, float]]]:
    """{mode: (record, ms per token, tokens/s) by batch} of those that decode."""
    found: dict[str, list[tuple[Record, float, float]]] = {}
    for r in sorted(records, key=lambda r: r.case.get("batch", 0)):
        how = (r.extra or {}).get("generation") or {}
        if r.status == "ok" and how.get("token_ms"):
            found.setdefault(r.impl, []).append((r, how["token_ms"]["p50"], how["tokens_per_s"]))
    return found


def readable(records: Sequence[Record]) -> pd.DataFrame:
    """A line per record of a generating phase, in the units of the columns."""
    lines = []
    for r in records:
        how = r.extra["generation"]
        token, held = how["token_ms"] or {}, how["memory"]
        share = how["roof_share"]
        mib = {
            f"{what} (MiB)": None if held[f"{what}_bytes"] is None else held[f"{what}_bytes"] / 2**20
            for what in ("weights", "cache", "activations")
        }
        lines.append(
            {"mode": short(r.impl), "phase": r.case["phase"], "batch": r.case["batch"]}
            | {"prompt": r.case["seq"], "new": r.case.get("new"), "first token (ms)": how["first_ms"]}
            | {"per token, p50 (ms)": token.get("p50"), "per token, p99 (ms)": token.get("p99")}
            | {"tokens/s": how["tokens_per_s"]}
            | mib
            | {"of memory's rate (%)": None if share is None else 100 * share}
            | (quantised.changes(r) if any(map(quantised.changes, records)) else {})
        )
    return pd.DataFrame(lines)


def curve(records: Sequence[Record], subtitle: str = "", theme: str = "light") -> go.Figure:
    """``records``: of several batches, with extra["generation"]."""
    found = points(records)
    if not found:
        return template.empty("No phase of this run decodes tokens; choose decode or generate.", theme)
    fig = template.figure("Throughput over latency", subtitle, theme)
    for mode, line in found.items():
        fig.add_scatter(
            x=[ms for _, ms, _ in line],
            y=[rate for _, _, rate in line],
            mode="lines+markers+text" if len(line) > 1 else "markers+text",
            name=short(mode),
            text=[str(r.case["batch"]) for r, _, _ in line],
            textposition="top center",
            line=dict(color=colour(mode), width=2),
            marker=dict(size=8, symbol=marker(mode)),
            hovertext=[
                f"<b>{short(mode)}</b><br>batch {r.case['batch']}, prompt {r.case['seq']:,}<br>"
                f"{numbers.three(ms)} ms per token, {numbers.three(rate)} tokens/s"
                for r, ms, rate in line
            ],
            hoverinfo="text",
        )
    fig.update_xaxes(title_text="time per output token, median (ms); labels are batches", rangemode="tozero")
    fig.update_yaxes(title_text="tokens/s", rangemode="tozero")
    axes.left(fig)
    fig.update_layout(showlegend=True)
    return fig

"""A swept parameter on the x axis: latency, speed-up or rate as a curve per implementation, on logarithmic
axes."""

from __future__ import annotations

import plotly.graph_objects as go

from fusescope.charts import axes, captions, numbers, template, verdicts
from fusescope.charts.bench.speedup import STATUS_WORDS, hover
from fusescope.charts.colours import colour, kind, marker, short
from fusescope.core.machine.conditions import are_unlike, device_of
from fusescope.core.records import Record
from fusescope.core.schema.cases import value, varying_values

QUANTITIES = {
    "speed-up": "speed-up over {baseline} (log)",
    "latency": "time per call ({unit}), log",
    "TFLOP/s": "effective TFLOP/s, log",
    "GB/s": "GB/s, log",
}


DASHES = ("solid", "dot", "dashdot", "longdash")
"""Of the curves by device, where there are unlike ones."""


def swept_key(records: list[Record]) -> str | None:
    """The one number that changes from case to case; None where nothing does, or where several change
    independently."""
    changing = varying_values([dict(r.case) for r in records])
    key = next(iter(changing), None)
    numeric = key and all(isinstance(v, int | float) and not isinstance(v, bool) for v in changing[key])
    return key if numeric and len(changing) == 1 else None


def curves(
    records: list[Record], key: str, quantity: str, baseline: str, subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """One curve per implementation over ``case[key]``; ``quantity`` is one of ``QUANTITIES``. A record that
    failed leaves a gap."""
    if quantity not in QUANTITIES:
        raise ValueError(f"quantity is one of {', '.join(QUANTITIES)}, not {quantity!r}")
    unit, factor = numbers.time_unit(r.ms for r in records)
    unlike = are_unlike(records)  # then a curve per implementation and device
    lines = list(dict.fromkeys((r.impl, device_of(r) if unlike else None) for r in records))
    title = {"speed-up": f"Speed-up over {short(baseline)}", "latency": "Latency"}.get(quantity, quantity)
    mode = next((r.main for r in records if r.main), None)
    fig = template.figure(
        f"{title} by {key}",
        template.join(subtitle, captions.mode(mode)),
        theme,
        height=440,
    )
    devices = list(dict.fromkeys(device for _, device in lines))
    ends, middles, bounds = [], [], []
    for impl, device in lines:
        own = (r for r in records if r.impl == impl and (not unlike or device_of(r) == device))
        rows = sorted(own, key=lambda r: value(r.case, key))
        points = [(r, _value(r, quantity, baseline, factor)) for r in rows]
        drawn = [(r, v) for r, v in points if v]
        middles += [v[1] for _, v in drawn]
        bounds += [x for _, v in drawn for x in (v[0], v[2])]
        if not drawn:
            continue
        x = [value(r.case, key) for r, _ in points]
        fig.add_scatter(
            x=x,
            y=[v[1] if v else None for _, v in points],
            mode="lines+markers",
            name=f"{short(impl)} on {device}" if device else short(impl),
            connectgaps=False,
            line=dict(
                color=colour(impl),
                width=2.6 if kind(impl) != "peer" else 2,
                dash="dash" if impl == baseline else DASHES[devices.index(device) % len(DASHES)],
            ),
            marker=dict(size=8, symbol=marker(impl)),
            error_y=axes.interval(
                *zip(*((v[1], v[0], v[2]) if v else (0, 0, 0) for _, v in points)), colour(impl)
            ),
            hovertext=[hover(r, baseline) for r, _ in points],
            hoverinfo="text",
        )
        ends.append((drawn[-1][1][1], impl))
    if not ends:
        states = sorted({STATUS_WORDS[r.status] for r in records})
        return template.empty(f"No {quantity} to draw: the records are {', '.join(states)}.", theme)
    low, high = axes.within(middles, bounds)
    axes.end_labels(fig, ends, *((min(low, 0.8), max(high, 1.25)) if quantity == "speed-up" else (low, high)))
    fig.update_xaxes(**axes.ticks_at([value(r.case, key) for r in records]), title_text=f"{key} (log)")
    y = axes.ratio(middles, bounds) if quantity == "speed-up" else axes.log(low, high)
    fig.update_yaxes(**y, title_text=QUANTITIES[quantity].format(baseline=short(baseline), unit=unit))
    if quantity == "speed-up":
        axes.line_at(fig, theme, y=1)
    axes.left(fig, fig.layout.yaxis.ticktext)
    fig.update_layout(margin=dict(r=150), showlegend=unlike)
    return fig


def _value(record: Record, quantity: str, baseline: str, factor: float) -> tuple[float, float, float] | None:
    """(low, median, high) of the quantity, None where the record has none."""
    if record.status != "ok":
        return None
    if quantity == "speed-up":
        if record.impl == baseline:
            return 1.0, 1.0, 1.0
        s = record.speedup
        if s and verdicts.unknown(s.low, s.high):
            return s.median, s.median, s.median  # a whisker across the plot would be no interval
        return (s.low, s.median, s.high) if s else None
    t = record.time
    low, middle, high = t.low, t.median, t.high
    if quantity == "latency":
        return low * factor, middle * factor, high * factor
    rate = (record.tflops.effective if record.tflops else None) if quantity == "TFLOP/s" else record.gbps
    return (rate * middle / high, rate, rate * middle / low) if rate else None

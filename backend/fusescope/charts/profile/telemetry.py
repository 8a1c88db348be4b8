"""The device over a run: clocks, power, temperature, utilisation, one panel each on one axis of time, with
bands where it was throttled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusescope.charts import axes, template
from fusescope.charts.colours import SERIES
from fusescope.charts.escape import plain

PANELS = {
    "clock (MHz)": {"sm_mhz": "SM", "memory_mhz": "memory"},
    "power (W)": {"power_w": "power"},
    "temperature (°C)": {"temperature_c": "temperature"},
    "utilisation (%)": {"gpu_percent": "GPU", "memory_percent": "memory", "cpu_percent": "CPU of the job"},
}
"""Panel → its columns of telemetry.parquet and their names."""
_COLOURS = (SERIES[0], SERIES[1], SERIES[6])
_LINE = 13  # pixels of a line of text
_BAND = "rgba(209,73,91,0.22)"


def panels(columns: Mapping[str, Sequence], subtitle: str = "", theme: str = "light") -> go.Figure:
    """columns: ts_ns and what was sampled, None or NaN where a reading failed; throttled: reasons or None, a
    sample each."""
    seconds = [(ns - columns["ts_ns"][0]) / 1e9 for ns in columns["ts_ns"]]
    there = {
        p: {k: w for k, w in found.items() if k in columns and _known(columns[k])}
        for p, found in PANELS.items()
    }
    there = {p: found for p, found in there.items() if found}
    if not there:
        return template.empty("The run holds no samples of the device.", theme)
    c, height = template.THEMES[theme], 130
    fig = template.figure("The device over the run", subtitle, theme, height=90 + height * len(there))
    gap = 0.09 if len(there) > 1 else 0.0
    share = (1 - gap * (len(there) - 1)) / len(there)
    layout: dict = {}
    for n, (title, found) in enumerate(there.items()):
        top = 1 - n * (share + gap)
        axis = "y" if n == 0 else f"y{n + 1}"
        layout["yaxis" if n == 0 else f"yaxis{n + 1}"] = dict(
            domain=[max(0.0, top - share), top],
            anchor="x",
            gridcolor=c["grid"],
            linecolor=c["line"],
            zeroline=False,
            nticks=4,
            rangemode="tozero" if "util" in title or "power" in title else "normal",
        )
        fig.add_annotation(
            x=0,
            y=top,
            xref="paper",
            yref="paper",
            xanchor="left",
            yanchor="bottom",
            showarrow=False,
            text=title,
            font=dict(size=12, color=c["muted"]),
        )
        ends: list[tuple[float, str, str]] = []  # where each line ends, its name and colour
        for colour, (key, word) in zip(_COLOURS, found.items(), strict=False):
            values = [None if v is None or v != v else float(v) for v in columns[key]]
            fig.add_scatter(
                x=seconds,
                y=values,
                yaxis=axis,
                mode="lines",
                line=dict(color=colour, width=1.8, shape="hv"),
                name=word,
                hovertemplate=f"{word}: %{{y:.4g}}<br>%{{x:.2f}} s<extra></extra>",
            )
            last = next((v for v in reversed(values) if v is not None), None)
            if len(found) > 1 and last is not None:
                ends.append((last, word, colour))
        for shift, (last, word, colour) in _apart(
            sorted(ends), _range(columns, found), share * height * len(there)
        ):
            fig.add_annotation(
                x=1,
                xref="paper",
                xanchor="left",
                xshift=4,
                y=last,
                yshift=shift,
                yref=axis,
                showarrow=False,
                text=word,
                font=dict(size=11, color=colour),
            )
    named = set()
    for start, end, reason in bands(columns):
        fig.add_shape(
            type="rect",
            x0=seconds[start],
            x1=seconds[end],
            y0=0,
            y1=1,
            yref="paper",
            fillcolor=_BAND,
            line_width=0,
            layer="below",
        )
        if reason not in named:  # to the right of the first panel's title
            fig.add_annotation(
                x=max(seconds[start], 0.3 * seconds[-1]),
                y=1,
                yref="paper",
                xanchor="left",
                yanchor="bottom",
                showarrow=False,
                text=f"throttled: {plain(reason)}",
                font=dict(size=11),
                bgcolor=c["paper"],
            )
        named.add(reason)
    fig.update_layout(**layout)
    fig.update_xaxes(title_text="time since the first sample (s)", anchor="free", position=0)
    axes.left(fig, title=False)
    fig.update_layout(margin=dict(r=92), hovermode="closest")
    return fig


def _range(columns: Mapping[str, Sequence], found: Mapping[str, str]) -> float:
    """How much of its axis a panel's lines take."""
    values = [float(v) for key in found for v in columns[key] if v is not None and v == v]
    return max(values) - min(values) or 1.0


def _apart(
    ends: Sequence[tuple[float, str, str]], span: float, pixels: float
) -> list[tuple[float, tuple[float, str, str]]]:
    """(pixels upwards, end) of lines' ends from below, so that no two names lie on each other."""
    found, free = [], -float("inf")
    for end in ends:
        place = end[0] / span * pixels
        free = max(place, free + _LINE)
        found.append((free - place, end))
    return found


def bands(columns: Mapping[str, Sequence]) -> list[tuple[int, int, str]]:
    """(first sample, sample after the last, reasons) of every stretch in which the device was throttled."""
    said = [None if v is None or v != v else str(v) for v in columns.get("throttled", ())]
    found, start = [], None
    for n, reason in enumerate([*said, None]):
        if start is not None and reason != said[start]:
            found.append((start, min(n, len(said) - 1), said[start]))
            start = None
        if reason is not None and start is None and n < len(said):
            start = n
    return found


def _known(values: Sequence) -> bool:
    return any(v is not None and v == v for v in values)

"""Worst error of every implementation against the reference: a dot each on a log axis, failed ones struck
out."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.bench.speedup import STATUS_WORDS
from fusescope.charts.colours import colour, short
from fusescope.core.records import Record

_FLOOR = 1e-12
"""Where an exact result is drawn: a logarithmic axis has no zero."""


def dots(
    records: list[Record],
    tolerance: tuple[float, float] | None = None,
    subtitle: str = "",
    theme: str = "light",
) -> go.Figure:
    """Largest absolute error (filled) and relative error (open) over all checked inputs; ``records`` are of
    one case.

    ``tolerance`` is (absolute, relative) of the operator for this dtype, written under the title: an element
    passes within absolute + relative · |reference|, so neither figure alone decides.
    """
    rows = [r for r in records if r.accuracy]
    if not rows:
        return template.empty("No result has an accuracy.", theme)
    rows.sort(key=lambda r: r.accuracy.max_abs, reverse=True)
    reference = rows[0].accuracy.reference
    passes = f"passes within {tolerance[0]:.2g} + {tolerance[1]:.2g}·|reference|" if tolerance else ""
    fig = template.figure(
        "Worst error against the reference",
        template.join(subtitle, f"reference in {reference}", passes),
        theme,
        134 + 42 * len(rows),
    )
    named = {}
    for record in rows:
        for value, symbol, word in (
            (record.accuracy.max_abs, "circle", "absolute"),
            (record.accuracy.max_rel, "circle-open", "relative"),
        ):
            drawn = value if value and math.isfinite(value) else (_FLOOR if value == 0 else 1e6)
            fig.add_scatter(
                x=[drawn],
                y=[record.impl],
                mode="markers",
                marker=dict(color=colour(record.impl), size=11, symbol=symbol, line=dict(width=2)),
                hovertemplate=f"<b>{short(record.impl)}</b> {STATUS_WORDS[record.status]}<br>"
                f"largest {word} error {numbers.three(value)}<br>"
                f"cosine {record.accuracy.cosine:.9g}<extra></extra>",
            )
        word = "<b>✗ wrong</b>" if record.status == "wrong" else STATUS_WORDS[record.status]
        name = f"<s>{short(record.impl)}</s>" if record.status == "wrong" else short(record.impl)
        figures = (
            f"{word} · abs {numbers.three(record.accuracy.max_abs)} · rel "
            f"{numbers.three(record.accuracy.max_rel)}"
        )
        named[record.impl] = name, figures
    axes.row_labels(fig, named, 16, theme)
    names = [r.impl for r in rows]
    fig.update_yaxes(
        categoryorder="array",
        categoryarray=names,
        showticklabels=False,
        ticks="",
        range=[-0.4, len(rows) - 0.35],
    )
    fig.update_xaxes(
        type="log",
        dtick=_decades(rows),
        tickangle=0,
        exponentformat="power",
        title_text="● largest absolute, ○ largest relative error (log)",
    )
    fig.update_xaxes(automargin=False)
    fig.update_layout(margin=dict(r=24, b=58))  # the last tick, and powers, which stand out of their line
    return fig


def _decades(rows: list[Record]) -> int:
    """Decades between ticks, so that at most six stand on a narrow page."""
    seen = [v for r in rows for v in (r.accuracy.max_abs, r.accuracy.max_rel) if v and math.isfinite(v)]
    span = math.log10(max(seen) / min(seen)) if seen else 1
    return max(1, math.ceil(span / 5))

"""The report on attention scores: by layer and head, one head in detail, tiles that could be skipped, and
padding."""

from __future__ import annotations

import statistics
from typing import Any

import pandas as pd
import streamlit as st

from fusescope.charts import captions, numbers
from fusescope.charts.masks import scores
from fusescope.core.records import Run
from pages._ui.app import cached_chart, url
from pages._ui.forms import fields
from pages._ui.widgets import elements, screen, style

RANDOM = (
    "**Random weights.** Their attention is nearly uniform, so these figures say nothing about a trained "
    "model: neither how sparse its scores are nor which tiles could be skipped. Give a checkpoint folder and "
    "analyse again."
)
_QUANTITIES = ("below the threshold (%)", "exact zeros (%)", "entropy (bits)", "tiles skipped (%)")


def draw(state: url.State, run: Run, report: dict[str, Any]) -> None:
    """Figures, charts and tables of the report."""
    case, trained = report["case"], bool(run.spec.get("checkpoint"))
    weights = "" if trained else ", random weights"
    subtitle = (
        f"{run.device_name} · {report['model']}{weights}, {report['dtype']}, mask {case['mask']} · "
        f"{captions.date(run.finished)}"
    )
    if not trained:
        st.warning(RANDOM)
    theme, layers = style.theme(), report["layers"]
    everything = [h for layer in layers for h in layer["heads"]]
    thresholds = report["thresholds"]
    names = [f"{t:.0e}".replace("e-0", "e-") for t in thresholds]
    a, b = st.columns(2)
    at = names.index(fields.pick(state, "s_at", "threshold", names, names[2], box=a))
    quantity = fields.pick(state, "s_cell", "quantity", _QUANTITIES, box=b)
    if trained:
        _figures(report, everything, at)
    _padding(report)
    values = [[_value(h, quantity, at) for h in layer["heads"]] for layer in layers]
    title = f"{quantity.capitalize()}" + (
        f", {names[at]}" if quantity != _QUANTITIES[1] and quantity != _QUANTITIES[2] else ""
    )
    fig = cached_chart.once(
        ("cells", run.id, quantity, at, theme), lambda: scores.cells(layers, values, title, subtitle, theme)
    )
    elements.chart(fig, f"{run.id}-heads", lambda: table(report))
    _skipping(run, report, everything, subtitle, theme)
    _one_head(state, run, report, subtitle, theme)
    with st.expander("All layers and heads as a table"):
        elements.table(table(report), f"{run.id}-scores", height=340)


def table(report: dict[str, Any]) -> pd.DataFrame:
    """One row per layer and head: shares in per cent of the kept elements."""
    lines = []
    for i, layer in enumerate(report["layers"]):
        for number, h in enumerate(layer["heads"]):
            live = h["live"] or 1
            line = {
                "layer": i,
                "attention": layer["name"],
                "head": number,
                "kept": h["live"],
                "exact zeros (%)": 100 * h["zeros"] / live,
            }
            line |= {
                f"below {t:g} (%)": 100 * n / live
                for t, n in zip(report["thresholds"], h["below"], strict=True)
            }
            line |= {"entropy (bits)": h["entropy"], "uniform (bits)": h["most_bits"]}
            line |= {
                f"tiles below {t:g} (%)": 100 * _share(s)
                for t, s in zip(report["thresholds"], h["skip"], strict=True)
            }
            lines.append(
                line
                | {
                    f"error at {t:g}": s["error"]
                    for t, s in zip(report["thresholds"], h["skip"], strict=True)
                }
            )
    return pd.DataFrame(lines)


def _figures(report: dict[str, Any], everything: list[dict], at: int) -> None:
    live = sum(h["live"] for h in everything) or 1
    skipped = sum(h["skip"][at]["skipped"] for h in everything) / max(
        1, sum(h["skip"][at]["tiles"] for h in everything)
    )
    keys = statistics.fmean(2 ** h["entropy"] for h in everything)
    shown = (
        (
            "below the threshold",
            numbers.percent(sum(h["below"][at] for h in everything) / live),
            "of the elements the mask keeps",
        ),
        (
            "exactly zero",
            numbers.percent(sum(h["zeros"] for h in everything) / live),
            f"in {report['dtype']}",
        ),
        (
            "effective keys",
            numbers.three(keys),
            "2^entropy, mean over heads: the number of keys of a uniform attention with that entropy",
        ),
        (
            "tiles skippable",
            numbers.percent(skipped),
            f"of the live tiles of {report['tile']} × {report['tile']}, all heads",
        ),
    )
    with st.container(horizontal=True, gap="large"):
        for label, value, help_text in shown:
            st.metric(label, value, help=help_text, width="content")


def _padding(report: dict[str, Any]) -> None:
    waste = report["padding"]
    if waste["tokens"]:
        st.caption(
            f"Padding to {report['case']['seq']} wastes {numbers.percent(waste['tokens'])} of the tokens "
            "(and of every GEMM with "
            f"weights) and {numbers.percent(waste['scores'])} of the scores; it is not counted above."
        )
    else:
        st.caption("No sequence in this batch is padded.")


def _skipping(run: Run, report: dict[str, Any], everything: list[dict], subtitle: str, theme: str) -> None:
    columns = list(zip(*(h["skip"] for h in everything), strict=True))
    skipped = [sum(s["skipped"] for s in c) / max(1, sum(s["tiles"] for s in c)) for c in columns]
    worst, typical = (
        [max(s["error"] for s in c) for c in columns],
        [statistics.median(s["error"] for s in c) for c in columns],
    )
    lost = [sum(s["lost"] for s in c) for c in columns]
    below = f"{subtitle} · tiles of {report['tile']}"
    fig = cached_chart.once(
        ("skip", run.id, theme),
        lambda: scores.skipping(report["thresholds"], skipped, worst, typical, below, theme),
    )
    data = {
        "threshold": report["thresholds"],
        "tiles skipped (%)": [100 * s for s in skipped],
        "worst error": worst,
        "median error": typical,
        "queries without keys": lost,
    }
    elements.chart(fig, f"{run.id}-skipping", pd.DataFrame(data))
    elements.note(
        "Error of a head's output, ‖out' − out‖₂ / ‖out‖₂, with the remaining keys renormalised. "
        "Calculated from these "
        "probabilities; a kernel would have to know them in advance."
    )


def _one_head(state: url.State, run: Run, report: dict[str, Any], subtitle: str, theme: str) -> None:
    names = [layer["name"] for layer in report["layers"]]
    a, b = st.columns([3, 1])
    name = fields.pick(state, "s_layer", "attention", names, box=a)
    layer = report["layers"][names.index(name)]
    number = fields.pick(state, "s_head", "head", range(len(layer["heads"])), box=b)
    h, title = layer["heads"][number], f"head {number}"
    room = screen.characters(pixels=385)
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=385):
            fig = scores.picture(
                h["heat"], layer["shape"], layer["side"], f"Probabilities of {title}", subtitle, theme
            )
            elements.chart(fig, f"{run.id}-heat-{name}-{number}", characters=room)
        with st.container(width=385):
            counts = pd.DataFrame(
                {"from": report["bins"][:-1], "to": report["bins"][1:], "elements": h["histogram"]}
            )
            fig = scores.histogram(
                h["histogram"], h["zeros"], report["bins"], f"Distribution in {title}", subtitle, theme
            )
            elements.chart(fig, f"{run.id}-sizes-{name}-{number}", counts, characters=room)
            st.caption(
                f"Entropy {numbers.three(h['entropy'])} of at most {numbers.three(h['most_bits'])} bits. "
                "The picture shows the first sequence."
            )


def _value(h: dict, quantity: str, at: int) -> float:
    live = h["live"] or 1
    return (100 * h["below"][at] / live, 100 * h["zeros"] / live, h["entropy"], 100 * _share(h["skip"][at]))[
        _QUANTITIES.index(quantity)
    ]


def _share(entry: dict) -> float:
    return entry["skipped"] / entry["tiles"] if entry["tiles"] else 0.0

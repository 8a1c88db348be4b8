"""Sentences and tables of the Scaling page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from fusescope.analysis.scaling.measured import Series
from fusescope.charts import numbers, verdicts
from fusescope.charts.scaling.devices import SCHEMES, Predicted
from fusescope.core.records import Record
from pages._ui.widgets import html_table
from pages._ui.widgets.text import md

_ONE = "one device does not talk"


def sentence(records: Sequence[Record], series: Sequence[Series], baseline: str) -> str:
    """The result in a line: the fastest layout, how sure that is, and how much of the ideal it is, over the
    same attention on one device."""
    failed = [r for r in records if r.status != "ok"]
    if not series:
        why = failed[0].reason if failed else "only one device was measured"
        return f"No layout of several devices has a time: {why}"
    strong = [
        (r, n, own, s.attention)
        for s in series
        if s.scaling == "strong"
        for (n, r), (_, own) in zip(s.points, s.speedups())
        if n > 1
    ]
    if not strong:
        return "No layout of several devices has a time on the same work."
    best, n, own, attention = min(strong, key=lambda found: found[0].ms)
    if best.speedup is None:
        return f"{best.impl} takes {numbers.time(best.ms)} on {n} devices; one device has no time beside it."
    ratio = best.speedup.median
    if best.speedup.verdict == "inconclusive":
        return (
            f"Inconclusive (too noisy): the shortest time is that of {best.impl} on {n} devices, "
            f"{numbers.ratio(ratio)} the speed of one{verdicts.evidence(best, best.speedup.words)}."
        )
    said = f"{best.impl} on {n} devices is {numbers.faster(ratio)} than"
    tied = _tied(best, [r for r, *_ in strong])
    if attention == baseline:
        return f"{said} one device: {numbers.percent(ratio / n)} of the ideal{tied}."
    alone = f"{numbers.ratio(own)} the speed of {attention} on one"
    return f"{said} {baseline} on one device, and {alone}: {numbers.percent(own / n)} of the ideal{tied}."


def _tied(best: Record, others: Sequence[Record]) -> str:
    """ "; sdpa-dp2 may be as fast, 42.7 ms against 42.7 ms": whose intervals overlap that of the first."""
    tied = [r for r in others if r is not best and r.time.low <= best.time.high]
    named = " and ".join(
        f"{r.impl} may be as fast, {numbers.time(r.ms)} against {numbers.time(best.ms)}" for r in tied
    )
    return f"; {named}" if named else ""


def layouts(records: Sequence[Record], baseline: str, key: str) -> None:
    """A line per layout and case."""
    rows, why = [], {}
    for number, r in enumerate(records):
        own = (r.extra or {}).get("parallel") or {}
        sent = own.get("communication") or {}
        rate = (r.extra or {}).get("throughput") or {}
        rows.append(
            {
                "layout": r.impl,
                "batch": r.case.get("batch"),
                "check": "correct" if r.status == "ok" else r.status,
                "ms": r.ms,
                "95 % interval": _interval(r),
                "speed-up": r.speedup.median if r.speedup else None,
                "verdict": r.speedup.verdict if r.speedup and r.impl != baseline else "",
                "tokens/s": rate.get("tokens_per_s"),
                "communication %": 100 * sent["share"] if sent.get("share") is not None else None,
                "hidden %": _hidden(sent.get("hidden")),
            }
        )
        for column in ("ms", "tokens/s", "communication %", "hidden %"):
            why[number, column] = r.reason or sent.get("unknown") or _ONE
        why[number, "speed-up"] = r.reason or "one device was not measured on this batch"
    data = pd.DataFrame(rows)
    html_table.draw(data, lambda number, column: why.get((number, column), ""), f"layouts-{key}")


def laws(series: Sequence[Series]) -> None:
    """The fitted laws with intervals, residuals and what is missing."""
    rows = []
    for s in series:
        fit = s.fit()
        rows.append(
            {
                "scheme": s.title,
                "law": "Gustafson" if fit.law == "gustafson" else "Amdahl",
                "serial share %": None if fit.serial is None else 100 * fit.serial,
                "95 % interval": ""
                if fit.low is None
                else f"{numbers.percent(fit.low)} – {numbers.percent(fit.high)}",
                "residuals": ", ".join(
                    f"{p.ranks}: {numbers.three(round(p.residual, 9) + 0.0)}" for p in fit.points
                ),
            }
        )
    if rows:
        st.caption("Fitted laws; residuals are measured minus fitted speed-ups by number of devices.")
        html_table.draw(pd.DataFrame(rows), {"serial share %": "no time on more than one device"}, "laws")
    if any((s.fit().serial or 0) > 1 for s in series):
        st.caption("A serial share above 100 % says that more devices took longer than one.")
    for note in dict.fromkeys(note for s in series if (note := s.fit().note)):
        st.caption(f"{note[0].upper()}{note[1:]}.")


def fits(found: Mapping) -> None:
    """Latency and bandwidth of each collective."""
    rows = [
        {
            "collective": link["collective"].replace("_", "-"),
            "µs per call": link.get("call_s", 0.0) * 1e6,
            "µs per step": link["alpha_s"] * 1e6,
            "GB/s": link["beta_bytes_per_s"] / 1e9,
            "worst error of the fit %": 100 * link["worst"],
            "points": link["points"],
        }
        for link in found.get("links") or ()
    ]
    if rows:
        st.caption(
            f"Latency per call and per step of a ring, and bandwidth, over {md(str(found.get('backend')))}."
        )
        html_table.draw(pd.DataFrame(rows), {}, "links")


def points(series: Sequence[Series], predicted: Predicted) -> pd.DataFrame:
    """What the charts over devices draw."""
    rows = [
        {"series": s.title, "devices": n, "ms": r.ms, "efficiency": e, "kind": "measured"}
        for s in series
        for (n, r), (_, e) in zip(s.points, s.efficiency(), strict=True)
    ]
    rows += [
        {
            "series": f"{attention}, {SCHEMES.get(scheme, scheme)}",
            "devices": n,
            "ms": ms,
            "efficiency": curve[0][1] / ms / n,
            "kind": "predicted, at least" if bound else "predicted",
        }
        for (attention, scheme), curve in predicted.items()
        for n, ms, bound in curve
    ]
    return pd.DataFrame(rows)


def ranks(records: Sequence[Record]) -> pd.DataFrame:
    """Weights, peak and the profiled call of every rank."""
    rows = []
    for r in records:
        own = (r.extra or {}).get("parallel")
        for n in range(own["ranks"] if own else 0):
            shares = own["communication"]["ranks"]
            share = shares[n] if n < len(shares) and shares[n] else {}
            rows.append(
                {
                    "layout": r.impl,
                    "batch": r.case.get("batch"),
                    "rank": n,
                    "weights_bytes": own["weights_bytes"][n],
                    "peak_bytes": own["peak_bytes"][n],
                    **{k: share.get(k) for k in ("span_ms", "compute_ms", "communication_ms", "exposed_ms")},
                }
            )
    return pd.DataFrame(rows)


def _hidden(share: float | None) -> float | None:
    """Per cent; below 0.05 none is hidden: kernels of two streams touch for a moment."""
    return None if share is None else 100 * share if share >= 5e-4 else 0.0


def _interval(record: Record) -> str:
    time = record.time
    return f"{numbers.three(time.low)} – {numbers.three(time.high)}" if time else ""

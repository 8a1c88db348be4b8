"""The cost model: trained on a run or on a text file, how accurate it is, and what it predicts for a code."""

from __future__ import annotations

import hashlib
import json
import statistics

import pandas as pd
import streamlit as st

from fusescope.charts import numbers
from fusescope.charts.fusion import predictions
from fusescope.jobs import submit
from fusescope.search.learning import cost_model, pairs
from pages._ui.app import background, cached_chart, url
from pages._ui.fusion import runs, scheme
from pages._ui.fusion.runs import Layer
from pages._ui.widgets import elements, screen, style

_AT_ONCE = 2000
"""Pairs up to which the cost model is trained automatically, unless a job measures meanwhile."""
_RUN, _FILE = "a run", "a file"


def draw(state: url.State, asked: Layer) -> None:
    """Where the pairs come from, and what was learned; of many pairs only when asked."""
    known, caption, context = _source(state, asked)
    if known is None:
        return
    if len(known) < cost_model.FEWEST:
        st.info(
            f"At least {cost_model.FEWEST} measured schemes needed (you have {len(known)}). Run a sweep "
            "first."
        )
        return
    mark = _mark(known)
    st.caption(f"{len(known):,} measured schemes; validated by five-fold cross-validation.")
    at_once = len(known) <= _AT_ONCE and not submit.queue()
    if at_once or st.button("Train cost model", type="primary", key="fusion/train"):
        st.session_state["fusion/trained"] = mark
    if st.session_state.get("fusion/trained") != mark:
        st.caption("No cost model has been trained on these pairs yet.")
        return
    model = background.result(
        ("cost model", mark),
        f"training on {len(known):,} schemes",
        lambda say: cost_model.train(known, context=context, say=say),
    )
    if model is not None:
        _learned(state, model, mark, caption)


def _source(state: url.State, asked: Layer) -> tuple[dict[str, float] | None, str, dict]:
    """(pairs, what stands under the charts, what describes the setting), (None, …) with a sentence where
    there are none."""
    kind = st.radio(
        "pairs from", (_RUN, _FILE), key=state.seed("pairs", _RUN, url.one_of((_RUN, _FILE))), horizontal=True
    )
    state.keep("pairs", kind, _RUN)
    if kind == _FILE:
        upload = st.file_uploader(
            "one scheme per line: bits, tab, milliseconds; or a saved cost model (JSON)",
            key="fusion/upload",
            type=["tsv", "txt", "csv", "json"],
        )
        if upload is None:
            st.caption(
                "Use “Pairs” of a sweep, your own measurements, or a saved cost model (its pairs are used)."
            )
            return None, "", {}
        text = upload.getvalue().decode(errors="replace")
        if text.lstrip().startswith("{"):
            known, context = cost_model.saved_pairs(text, upload.name)
            return known, f"{upload.name}, {context.get('device', 'unknown device')}", context
        return pairs.parse(text, upload.name), f"{upload.name}, unknown device", {"file": upload.name}
    run = runs.choose(state, "data", "run", layer=asked)
    if run is None:
        st.markdown("**No run to train on yet.** Run a sweep, or upload a file of bits and milliseconds.")
        return None, "", {}
    known, all_of_it = runs.comparable_pairs(run.id), len(runs.known_pairs(run.id))
    if len(known) < all_of_it:
        st.caption(
            f"Only those of its {all_of_it:,} schemes that one machine measured: on another, "
            "torch.compile generates different "
            "kernels."
        )
    return known, runs.caption(run), {k: run.spec.get(k) for k in asked.setting.spec()} | {"run": run.id}


def _learned(state: url.State, model: cost_model.CostModel, mark: str, caption: str) -> None:
    seen = model.validation
    times = list(model.known.values())
    unit, factor = numbers.time_unit(times)
    figures = (
        (
            "error (held out)",
            numbers.percent(seen["error_percent"] / 100),
            "Mean of |predicted / measured − 1|",
        ),
        ("rank correlation", numbers.three(seen["rank_correlation"]), "Spearman's, on held-out schemes"),
        ("root mean square error", numbers.time(seen["rmse_ms"]), "On held-out schemes"),
        (
            "interval coverage",
            numbers.percent(seen["coverage"]),
            "Share of held-out schemes inside the 95 % interval",
        ),
    )
    with st.container(horizontal=True, gap="medium"):
        for name, value, meaning in figures:
            st.metric(name, value, help=meaning, width=175)
    threshold = _threshold(state, model, times, unit, factor)
    _predicted(model, threshold)
    theme = style.theme()
    row = st.container(horizontal=True, gap="medium")
    room = screen.characters(pixels=385)
    with row, st.container(width=385):
        points = seen["points"]
        fig = cached_chart.once(
            ("against", mark, round(threshold, 6), theme),
            lambda: predictions.against_measured(points, threshold, caption, theme),
        )
        elements.chart(fig, f"cost-model-{mark}-points", lambda: pd.DataFrame(points), characters=room)
    with row, st.container(width=385):
        fig = cached_chart.once(
            ("importance", mark, theme), lambda: predictions.importance(model.importance, caption, theme)
        )
        importance = lambda: pd.DataFrame(model.importance)  # noqa: E731
        elements.chart(fig, f"cost-model-{mark}-importance", importance, characters=room)
    st.download_button(
        "Save cost model",
        data=lambda: json.dumps(model.to_json(), allow_nan=False),
        file_name=f"cost-model-{mark}.json",
        mime="application/json",
        on_click="ignore",
        key="fusion/save",
        help="JSON; `fusescope predict CODE --data FILE` reads it",
    )


def _threshold(
    state: url.State, model: cost_model.CostModel, times: list[float], unit: str, factor: float
) -> float:
    """The movable line between High and Low, in ms."""
    low, start = min(times) * factor, model.threshold_ms * factor
    high = max(start, statistics.quantiles(times, n=20)[-1] * factor)  # beyond that nearly all are High
    key = state.seed("threshold", start, float)
    if not low <= st.session_state[key] <= high:
        st.session_state[key] = start
    value = st.slider(
        f"High performance (1) up to … {unit}",
        low,
        high,
        key=key,
        step=(high - low) / 200 or None,
        format="%.4g",
        help="Initially the median of the times",
    )
    state.keep("threshold", f"{value:.6g}", f"{start:.6g}")
    share = statistics.fmean(t * factor <= value for t in times)
    st.caption(f"{numbers.percent(share)} of the schemes measured are High (1), the others Low (0).")
    return value / factor


def _predicted(model: cost_model.CostModel, threshold: float) -> None:
    """The prediction for the code of the page."""
    code = scheme.drawn()
    predicted = model.predict([code], threshold)[0]
    word = "High (1)" if predicted.performance else "Low (0)"
    text = (
        f"`{code}`: **{numbers.time(predicted.ms)}** [{numbers.time(predicted.low)}, "
        f"{numbers.time(predicted.high)}], **{word}**, "
        f"probability of High {_share(predicted.probability)}"
    )
    measured = model.known.get(predicted.code)
    st.markdown(text + (f"; measured {numbers.time(measured)}" if measured else "; not measured"))
    st.caption("The code on the Scheme tab.")


def _share(probability: float) -> str:
    """In a caption where the normal distribution's tails would give figures beyond what is known."""
    if probability < 0.001:
        return "below 0.1 %"
    return "above 99.9 %" if probability > 0.999 else numbers.percent(probability)


def _mark(known: dict[str, float]) -> str:
    return hashlib.sha256(json.dumps(sorted(known.items())).encode()).hexdigest()[:12]

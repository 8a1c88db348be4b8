"""The surrogate: trained on a run or on somebody's text file, how well it knows the landscape, and what it
says of a code."""

from __future__ import annotations

import hashlib
import json
import statistics

import pandas as pd
import streamlit as st

from fusescope.charts import numbers
from fusescope.charts.fusion import cost_model as cost_model_charts
from fusescope.search.learning import cost_model, pairs
from fusescope.search.scheme.setting import Setting
from pages._ui.app import background, cached_chart, style, url
from pages._ui.fusion import runs, scheme
from pages._ui.widgets import elements

_RUN, _FILE = "a run", "a file"


def draw(state: url.State, setting: Setting) -> None:
    """Where the pairs come from, the button, and what was learned."""
    known, words, context = _source(state, setting)
    if known is None:
        return
    if len(known) < cost_model.FEWEST:
        st.info(
            f"{len(known)} schemes with a time are too few to learn from; it takes {cost_model.FEWEST}. Traverse more of them first."
        )
        return
    mark = _mark(known)
    st.caption(
        f"{len(known):,} schemes with a time; a fifth of them is held out at a time, to see how well the others foretell it."
    )
    if st.button("Train the surrogate", type="primary", key="fusion/train"):
        st.session_state["fusion/trained"] = mark
    if st.session_state.get("fusion/trained") != mark:
        st.caption("Nothing was learned from these pairs yet.")
        return
    model = background.result(
        ("surrogate", mark),
        f"learning from {len(known):,} schemes",
        lambda say: cost_model.train(known, context=context, say=say),
    )
    if model is not None:
        _learned(state, model, mark, words)


def _source(state: url.State, setting: Setting) -> tuple[dict[str, float] | None, str, dict]:
    """(pairs, what stands under the charts, what describes the setting), (None, …) with a sentence where
    there are none."""
    kind = st.radio(
        "pairs from", (_RUN, _FILE), key=state.seed("pairs", _RUN, url.one_of((_RUN, _FILE))), horizontal=True
    )
    state.keep("pairs", kind, _RUN)
    if kind == _FILE:
        upload = st.file_uploader(
            "bits, a tab, milliseconds: a line a scheme; or a saved surrogate (JSON)",
            key="fusion/upload",
            type=["tsv", "txt", "csv", "json"],
        )
        if upload is None:
            st.caption(
                "Such a file comes from “Pairs” of a traverse, or from measurements of your own; of a saved surrogate its pairs are taken."
            )
            return None, "", {}
        text = upload.getvalue().decode(errors="replace")
        if text.lstrip().startswith("{"):
            known, context = cost_model.saved_pairs(text, upload.name)
            return known, f"{upload.name}, {context.get('device', 'device not known')}", context
        return pairs.parse(text, upload.name), f"{upload.name}, device not known", {"file": upload.name}
    run = runs.choose(state, "data", "run", setting=setting, largest=True)
    if run is None:
        st.markdown(
            "**There is no run to learn from yet.** Traverse some schemes, or take a file of bits and milliseconds."
        )
        return None, "", {}
    known, all_of_it = runs.comparable_pairs(run.id), len(runs.known_pairs(run.id))
    if len(known) < all_of_it:
        st.caption(
            f"Of its {all_of_it:,} schemes those that were measured on one machine: on another torch.compile makes other kernels of the "
            "same segments."
        )
    return known, runs.setting_words(run), {k: run.spec.get(k) for k in setting.spec()} | {"run": run.id}


def _learned(state: url.State, model: cost_model.Surrogate, mark: str, words: str) -> None:
    seen = model.validation
    times = list(model.known.values())
    unit, factor = numbers.time_unit(times)
    figures = (
        (
            "error, held out",
            numbers.percent(seen["error_percent"] / 100),
            "Mean of |predicted / measured − 1|",
        ),
        ("rank correlation", numbers.three(seen["rank_correlation"]), "Spearman's, on schemes held out"),
        ("root mean square error", numbers.time(seen["rmse_ms"]), "Of the predictions of schemes held out"),
        (
            "in the interval",
            numbers.percent(seen["coverage"]),
            "Share of held-out schemes inside the 95 % interval",
        ),
    )
    with st.container(horizontal=True, gap="medium"):
        for name, value, meaning in figures:
            st.metric(name, value, help=meaning, width=175)
    threshold = _threshold(state, model, times, unit, factor)
    _predicted(state, model, threshold)
    theme = style.theme()
    row = st.container(horizontal=True, gap="medium")
    with row, st.container(width=385):
        points = seen["points"]
        fig = cached_chart.once(
            ("against", mark, round(threshold, 6), theme),
            lambda: cost_model_charts.against_measured(points, threshold, words, theme),
        )
        elements.chart(fig, f"surrogate-{mark}-points", lambda: pd.DataFrame(points))
    with row, st.container(width=385):
        fig = cached_chart.once(
            ("importance", mark, theme), lambda: cost_model_charts.importance(model.importance, words, theme)
        )
        elements.chart(fig, f"surrogate-{mark}-importance", lambda: pd.DataFrame(model.importance))
    st.download_button(
        "Save the surrogate",
        data=lambda: json.dumps(model.to_json(), allow_nan=False),
        file_name=f"surrogate-{mark}.json",
        mime="application/json",
        on_click="ignore",
        key="fusion/save",
        help="JSON; `python -m fusescope predict CODE --data FILE` reads it",
    )


def _threshold(
    state: url.State, model: cost_model.Surrogate, times: list[float], unit: str, factor: float
) -> float:
    """The movable line between High and Low, in ms."""
    low, start = min(times) * factor, model.threshold_ms * factor
    high = max(start, statistics.quantiles(times, n=20)[-1] * factor)  # beyond that nearly all are High
    key = state.seed("threshold", start, float)
    if not low <= st.session_state[key] <= high:
        st.session_state[key] = start
    value = st.slider(
        f"High performance (1) is at most … {unit}",
        low,
        high,
        key=key,
        step=(high - low) / 200 or None,
        format="%.4g",
        help="The median of the times to begin with",
    )
    state.keep("threshold", f"{value:.6g}", f"{start:.6g}")
    share = statistics.fmean(t * factor <= value for t in times)
    st.caption(f"{numbers.percent(share)} of the schemes measured are High (1), the others Low (0).")
    return value / factor


def _predicted(state: url.State, model: cost_model.Surrogate, threshold: float) -> None:
    """What it says of the code of the page."""
    code = scheme.code_of(state)
    said = model.predict([code], threshold)[0]
    word = "High (1)" if said.performance else "Low (0)"
    text = (
        f"`{code}`: **{numbers.time(said.ms)}** [{numbers.time(said.low)}, {numbers.time(said.high)}], **{word}**, "
        f"probability of High {_share(said.probability)}"
    )
    measured = model.known.get(said.code)
    st.markdown(text + (f"; measured {numbers.time(measured)}" if measured else "; not among the pairs"))
    st.caption("The code is the one of the part Scheme.")


def _share(probability: float) -> str:
    """In words where the normal distribution's tails would give figures that nobody can know."""
    if probability < 0.001:
        return "below 0.1 %"
    return "above 99.9 %" if probability > 0.999 else numbers.percent(probability)


def _mark(known: dict[str, float]) -> str:
    return hashlib.sha256(json.dumps(sorted(known.items())).encode()).hexdigest()[:12]

"""Search strategies replayed on a recorded sweep: how soon each approaches the best scheme. Nothing is
measured."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fusescope.charts.fusion import progress
from fusescope.search.learning import explore
from pages._ui.app import background, cached_chart, url
from pages._ui.forms import fields
from pages._ui.fusion import runs
from pages._ui.fusion.runs import Layer
from pages._ui.widgets import elements, style
from pages._ui.widgets.text import md, sentence

_FEWEST = 40  # schemes: a search among fewer says nothing


def draw(state: url.State, asked: Layer) -> None:
    """In an expander."""
    elements.folded(
        "Compare strategies on recorded times",
        "fusion/compare",
        lambda: _replay(state, asked),
        expanded=any([state.query.get(name) for name in ("replay", "replay_most", "seed")]),
    )


def _replay(state: url.State, asked: Layer) -> None:
    """A sweep, the strategies to replay on it, and how soon each approaches its best scheme."""
    run = runs.choose(state, "replay", "sweep", ("traverse",), asked)
    if run is None:
        st.caption("No sweep yet.")
        return
    truth = runs.known_pairs(run.id)
    if len(truth) < _FEWEST:
        st.caption(f"At least {_FEWEST} measured schemes needed (you have {len(truth)}).")
        return
    a, b, c = st.columns([3, 1, 1], vertical_alignment="bottom")
    chosen = a.multiselect(
        "strategies",
        list(explore.STRATEGIES),
        ["guided", "evolutionary", "random"],
        key="fusion/replayed",
    )
    state.scopes.add(run.id)
    usual = min(len(truth), max(20, len(truth) // 10))
    most = fields.whole(state, "replay_most", "evaluations", 2, len(truth), usual, run.id, b)
    seed = fields.whole(state, "seed", "seed", 0, 10_000, 0, box=c)
    mark = (run.id, len(truth), tuple(chosen), most, seed)
    try:
        fields.refuse(state)
    except ValueError as error:
        st.error(md(sentence(error)))
        chosen = []
    if st.button("Replay", key="fusion/replay_go", disabled=not chosen) and chosen:
        st.session_state["fusion/replay_mark"] = mark
    if st.session_state.get("fusion/replay_mark") != mark:
        return
    tracks = background.result(
        ("replay", *mark),
        "replaying searches",
        lambda say: _tracks(truth, chosen, most, seed, say),
    )
    if tracks is None:
        return
    theme, caption = style.theme(), runs.caption(run)
    best = min(truth.values())
    fig = cached_chart.once(
        ("replayed", *mark, theme),
        lambda: progress.best_so_far(tracks, {}, f"replayed: {caption}", theme, best),
    )
    elements.chart(fig, f"{run.id}-replay", lambda: _table(tracks))


def _tracks(
    truth: dict[str, float], strategies: list[str], most: int, seed: int, say: background.Report
) -> dict[str, list[tuple[int, float, float]]]:
    """(number, ms, best so far) of every evaluation, by strategy."""
    found = {}
    for number, name in enumerate(strategies):
        say(number, len(strategies))
        found[name] = [
            (s.number, s.ms, s.best_ms) for s in explore.replay(truth, name, evaluations=most, seed=seed)
        ]
    return found


def _table(tracks: dict[str, list[tuple[int, float, float]]]) -> pd.DataFrame:
    rows = [(name, *step) for name, steps in tracks.items() for step in steps]
    return pd.DataFrame(rows, columns=["strategy", "evaluation", "ms", "best ms"])

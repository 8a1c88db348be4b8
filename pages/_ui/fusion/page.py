"""The Fusion page: the layer in the form; next to it one scheme, an exhaustive sweep, the cost model or a
search."""

from __future__ import annotations

import streamlit as st

from pages._ui.app import redraw, url
from pages._ui.forms import fields
from pages._ui.fusion import learn, place, scheme, search, sweep
from pages._ui.fusion.runs import Layer

_PARTS = {"Scheme": scheme.draw, "Sweep": sweep.draw, "Cost model": learn.draw, "Search": search.draw}
_OWN = {
    ("Sweep",): ("ranges", "limit", "segments", "traverse"),
    ("Cost model",): ("pairs", "data", "threshold"),
    ("Search",): ("strategy", "evaluations", "seconds", "search", "replay", "seed"),
    ("Sweep", "Search"): ("cluster", "scheduler"),
}
"""What these parts write into the URL."""

form = place.form


def result(state: url.State, layer: Layer | None) -> None:
    """The chosen part, drawn again without the form."""
    redraw.part(state, lambda now: _chosen(now, layer))


def _chosen(state: url.State, layer: Layer | None) -> None:
    part = fields.view(state, "part", _PARTS)
    for owners, owned in _OWN.items():  # what is not drawn stays in the URL
        for name in owned:
            if (part not in owners or layer is None) and name in state.query:
                state.keep(name, state.query[name])
    state.keep("code", scheme.code_of(state, layer))
    if layer is None:
        st.caption("The layer settings are inconsistent.")
        return
    _PARTS[part](state, layer)

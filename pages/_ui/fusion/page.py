"""The Fusion page: the layer in the form; next to it one scheme, an exhaustive sweep, the cost model or a
search."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from fusescope.core.records import DTYPES
from fusescope.core.schema import Parameter
from fusescope.search.scheme.setting import COMPILERS, PARAMETERS, Setting
from pages._ui.app import device, url
from pages._ui.forms import fields, mask_picker, parameters
from pages._ui.fusion import learn, scheme, search, sweep
from pages._ui.widgets.text import md, sentence

_SCOPE = "layer"
_PARTS = {"Scheme": scheme.draw, "Sweep": sweep.draw, "Cost model": learn.draw, "Search": search.draw}
_OWN = {
    "Sweep": ("ranges", "limit", "segments", "traverse"),
    "Cost model": ("pairs", "data", "threshold"),
    "Search": ("strategy", "evaluations", "seconds", "search", "replay", "seed"),
}
"""What each part writes into the URL."""


def form(state: url.State) -> Setting | None:
    """The layer, its mask, dtype and compiler; None (with a sentence) while they are inconsistent."""
    state.scopes.add(_SCOPE)
    st.markdown("**The layer**")
    place: list = []
    try:
        values = parameters.draw(state, _SCOPE, _parameters(), None, place.append)
        setting = Setting(device=device.current(), **{name: value[0] for name, value in values.items()})
    except (ValueError, TypeError, OSError) as error:
        st.error(md(sentence(error)))
        return None
    if place:
        with place[0]:
            mask_picker.thumbnail(setting.mask, setting.seq, setting.seq)
    st.caption(md(f"{setting}. Only times of the same setting are compared."))
    return setting


def result(state: url.State, setting: Setting | None) -> None:
    """The chosen part."""
    part = fields.view(state, "part", _PARTS)
    for other, owned in _OWN.items():
        for name in owned:
            if other != part and name in state.query:
                state.keep(name, state.query[name])  # the settings of the other parts stay in the URL
    state.keep("code", scheme.code_of(state), scheme.START)
    if setting is None:
        st.caption("The layer settings are inconsistent.")
        return
    _PARTS[part](state, setting)


def _parameters() -> tuple[Parameter, ...]:
    """The widgets of a Setting; BERT-base's layer to begin with."""
    choices = {"dtype": DTYPES, "compiler": tuple(COMPILERS)[::-1]}
    if device.is_gpu():
        choices = {"dtype": ("float16", "bfloat16", "float32"), "compiler": tuple(COMPILERS)}
    first = {"batch": 1, "seq": 128} | {name: values[0] for name, values in choices.items()}
    return tuple(
        replace(p, default=first.get(p.name, p.default), choices=choices.get(p.name, p.choices))
        for p in PARAMETERS
        if p.name != "device"
    )

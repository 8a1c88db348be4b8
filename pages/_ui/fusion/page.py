"""The Fusion page: the layer in the form; beside it one scheme, an exhaustive sweep, the cost model or a
search."""

from __future__ import annotations

import streamlit as st

from fusescope.core.schema import Parameter
from fusescope.search.scheme.setting import COMPILERS, Setting
from pages._ui.app import device, url
from pages._ui.forms import fields, mask_picker, parameters
from pages._ui.fusion import learn, scheme, search, sweep
from pages._ui.widgets.text import md, sentence

_SCOPE = "layer"
_PARTS = {"Scheme": scheme.draw, "Traverse": sweep.draw, "Surrogate": learn.draw, "Search": search.draw}
_OWN = {
    "Traverse": ("ranges", "limit", "segments", "traverse"),
    "Surrogate": ("pairs", "data", "threshold"),
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
    dtypes = ("float16", "bfloat16", "float32") if device.is_gpu() else ("float32", "float16", "bfloat16")
    compilers = tuple(COMPILERS) if device.is_gpu() else tuple(COMPILERS)[::-1]
    help_text = "; ".join(f"{name}: {what}" for name, what in COMPILERS.items())
    return (
        Parameter("batch", "int", 1, "sequences", 1, 4096, (1, 2, 4, 8, 16, 32)),
        Parameter("seq", "int", 128, "tokens per sequence", 1, 16384, (32, 64, 128, 256, 512, 1024, 2048)),
        Parameter("heads", "int", 12, "heads", 1, 256, (1, 2, 4, 8, 12, 16)),
        Parameter("head_dim", "int", 64, "head size", 8, 256, (32, 64, 128)),
        Parameter("mask", "mask", "full", "which keys a query sees"),
        Parameter("dtype", "choice", dtypes[0], "of activations and weights", choices=dtypes),
        Parameter("compiler", "choice", compilers[0], help_text, choices=compilers),
        Parameter("ffn", "int", None, "width of the FFN; default four times the layer's", 1, 1 << 17),
    )

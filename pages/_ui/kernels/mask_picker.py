"""A mask chosen by name with its parameters as widgets, and its picture: what a query sees of the keys."""

from __future__ import annotations

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fusescope import masks
from fusescope.charts.masks import thumbnail as picture
from pages._ui.app import cached_chart, style, url
from pages._ui.masks import stats

_FILE = "file:path.npy"
_EXACT = 1 << 21
"""Up to this many cells the picture and density count every cell; above, 256 rows are drawn and the caption
says so."""


def choose(state: url.State, p, size: int | None = None) -> tuple[str, DeltaGenerator]:
    """The mask as ``masks.parse`` reads it, and the place for its picture. ``p`` is the operator's parameter
    of kind "mask".

    ``size``: the number of keys, where it is known already, so that defaults can be shown as the numbers they
    are.
    """
    given = masks.parse(str(p.default or "full"))
    if p.name in state.query and state.opened:
        try:
            given = masks.parse(state.query[p.name])
        except (ValueError, OSError) as error:
            state.problems.append(f"In the URL, {p.name} was not taken: {error}.")
    dense = isinstance(given, masks.DenseMask)
    name_key = state.seed("mask_name", _FILE if dense else given.name, url.one_of([*masks.names(), _FILE]))
    if state.opened:
        st.session_state[name_key] = _FILE if dense else given.name
    name = st.selectbox("mask", [*masks.names(), _FILE], key=name_key, help=p.help)
    if name == _FILE:
        key = state.seed("mask_file", str(given).removeprefix("file:") if dense else "")
        file = st.text_input(
            "boolean matrix (.npy, .npz, .csv, .mtx)",
            key=key,
            placeholder="/path/to/mask.npy",
            help="True = keep",
        )
        text = f"file:{file.strip()}"
        if not file.strip():
            raise ValueError("give the path of a .npy, .npz, .csv or .mtx file that holds the boolean mask")
        place = st.container()
    else:
        definition = masks.definition(name)
        left, right = st.columns(2, gap="small", wrap=False)
        place = left.container()
        with right:
            st.caption(f"keep where {definition.FORMULA}", help=definition.DESCRIPTION)
            text = _with_parameters(
                state, definition, given if not dense and given.name == name else None, size
            )
    masks.parse(text)
    state.keep(p.name, text, str(p.default))
    return text, place


def _with_parameters(state: url.State, definition, given, size: int | None) -> str:
    """Text boxes behind a button: left empty they take the default, which the box shows as the number it
    is."""
    if not definition.PARAMETERS:
        return definition.NAME
    keys = {p.name: f"{state.page}/mask/{definition.NAME}/{p.name}" for p in definition.PARAMETERS}
    for p in definition.PARAMETERS:
        if keys[p.name] not in st.session_state or (state.opened and given is not None):
            st.session_state[keys[p.name]] = (
                p.write(given.values[p.name]) if given is not None and p.name in given.values else ""
            )
    count = sum(bool(st.session_state[k].strip()) for k in keys.values())
    parts = []
    with st.popover(f"Parameters · {count}" if count else "Parameters", width="stretch"):
        columns = st.columns(2, gap="small")
        for i, p in enumerate(definition.PARAMETERS):
            with columns[i % 2]:
                value = st.text_input(
                    p.name,
                    key=keys[p.name],
                    placeholder=_default(p, size),
                    help=f"{p.help}; default {p.default_text}",
                )
            if value.strip():
                parts.append(f"{p.name}={p.write(p.read(value.strip()))}")
    return definition.NAME + (":" + ",".join(parts) if parts else "")


def _default(p, size: int | None) -> str:
    if p.default is None:
        return "needed"
    return p.write(p.check(p.default(size))) if size else p.default_text


def thumbnail(text: str, seq_q: int, seq_k: int) -> None:
    """The picture under the controls."""
    theme, stamp = style.theme(), stats.stamp(text)
    shares, density, exact = _picture(text, seq_q, seq_k, stamp)
    fig = cached_chart.once(
        ("thumbnail", text, stamp, seq_q, seq_k, theme),
        lambda: picture.thumbnail(shares, seq_q, seq_k, density, theme),
    )
    st.plotly_chart(fig, theme=None, key="mask/picture", config={"displayModeBar": False}, width=124)
    if not exact:
        st.caption("picture and share from 256 sampled rows")


@st.cache_data(max_entries=64, show_spinner=False)
def _picture(text: str, seq_q: int, seq_k: int, stamp: str) -> tuple[np.ndarray, float, bool]:
    """(shares per pixel, density, whether every cell was counted); of the first sequence where a mask differs
    among them."""
    bound = masks.parse(text).bind(seq_q, seq_k)
    if seq_q * seq_k <= _EXACT:
        keep = bound.dense()
        keep = keep[0] if keep.ndim == 3 else keep
        return picture.shrink(keep), float(keep.mean()), True
    rows = np.unique(np.linspace(0, seq_q - 1, 256).astype(int))
    blocks = [bound.block(int(r), int(r) + 1) for r in rows]
    keep = np.concatenate([b[0] if b.ndim == 3 else b for b in blocks])
    return picture.shrink(keep), float(keep.mean()), False

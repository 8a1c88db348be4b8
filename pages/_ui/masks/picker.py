"""A mask by name with its parameters as sliders, or from a file; two of them may stand on the Masks page."""

from __future__ import annotations

from typing import Any

import streamlit as st

from fusescope import masks
from fusescope.masks import Parameter
from pages._ui.app import url
from pages._ui.masks import stats, upload

FILE, NONE = "from a file", "nothing"


def choose(state: url.State, slot: str, label: str, size: int, start: str) -> str | None:
    """The text of the mask in a slot ("mask" or "with"); None where nothing is chosen. ``size``: keys, for
    the defaults.

    The slot's name is also the URL's key; ``start`` is the mask that the page begins with (NONE for none).
    """
    names = [*([NONE] if start == NONE else []), *masks.names(), FILE]
    name_key = f"masks/{slot}/name"
    if state.opened or name_key not in st.session_state:
        _from_url(state, slot, name_key, start)
    name = st.selectbox(label, names, key=name_key, format_func=lambda n: n.replace("_", " "))
    if name == NONE:
        return None
    text = _file(slot) if name == FILE else _formula(slot, masks.definition(name), size)
    if text is None:
        return None
    state.keep(slot, text, start)
    return text


def pick(name: str) -> None:
    """Put a mask of that name into the first slot, with its defaults (a callback)."""
    st.session_state["masks/mask/name"] = name
    for key in [k for k in st.session_state if str(k).startswith(f"masks/mask/{name}/")]:
        del st.session_state[key]


def take_file(path: str) -> None:
    """Put a file into the first slot (a callback)."""
    st.session_state["masks/mask/name"] = FILE
    st.session_state["masks/mask/file"] = path


def _from_url(state: url.State, slot: str, name_key: str, start: str) -> None:
    st.session_state[name_key] = start
    if slot not in state.query:
        return
    try:
        given = masks.parse(state.query[slot])
    except (ValueError, OSError) as error:
        state.problems.append(f"In the URL, {slot} was not taken: {error}.")
        return
    if isinstance(given, masks.DenseMask):
        st.session_state[name_key] = FILE
        st.session_state[f"masks/{slot}/file"] = given.path
        return
    st.session_state[name_key] = given.name
    known = {p.name: p for p in masks.definition(given.name).PARAMETERS}
    for name, value in given.values.items():
        key = f"masks/{slot}/{given.name}/{name}"
        st.session_state[key] = known[name].write(value) if known[name].kind.startswith("ints") else value
        st.session_state[f"{key}/default"] = None


def _file(slot: str) -> str | None:
    key = f"masks/{slot}/file"
    saved = upload.saved()
    chosen = st.session_state.get(key)
    options = list(dict.fromkeys([*saved, *([chosen] if chosen else [])]))
    path = st.selectbox(
        "file",
        options,
        key=key,
        index=None,
        accept_new_options=True,
        placeholder="upload below, or type a path",
        format_func=lambda p: p.rpartition("/")[2],
        help="Boolean matrices uploaded here; or the path of a .npy, .npz, .csv or .mtx",
    )
    if not path:
        st.caption("Upload a matrix below, or type the path of one.")
        return None
    stats.shape(f"file:{path}", stats.stamp(f"file:{path}"))  # says what is wrong with it
    return f"file:{path}"


def _formula(slot: str, definition, size: int) -> str:
    st.caption(f"keep where {definition.FORMULA}", help=definition.DESCRIPTION)
    parts = []
    for p in definition.PARAMETERS:
        default = p.check(p.default(size)) if p.default else _some(p, size)
        value = _widget(f"masks/{slot}/{definition.NAME}/{p.name}", p, default)
        if value != default or p.default is None:
            parts.append(f"{p.name}={p.write(value)}")
    return definition.NAME + (":" + ",".join(parts) if parts else "")


def _some(p: Parameter, size: int) -> Any:
    """Something to begin with where a parameter has no default: a length of six tenths."""
    return p.check([max(1, size * 6 // 10)] if p.kind.startswith("ints") else p.low)


def _widget(key: str, p: Parameter, default: Any) -> Any:
    """The widget of a parameter; until it is touched it follows the default, which depends on the length."""
    shown = p.write(default) if p.kind.startswith("ints") else default
    before = f"{key}/default"
    if key not in st.session_state or (
        before in st.session_state and st.session_state[key] == st.session_state[before]
    ):
        st.session_state[key] = shown
    st.session_state[before] = shown
    label, help_text = p.name.replace("_", " "), f"{p.help}; default {p.default_text}"
    if p.kind == "bool":
        return st.toggle(label, key=key, help=help_text)
    if p.kind.startswith("ints"):
        return p.read(st.text_input(label, key=key, help=help_text).strip())
    kind = float if p.kind == "float" else int
    value = kind(st.session_state[key])
    st.session_state[key] = value
    options = sorted({kind(t) for t in p.typical} | {value, kind(default)})
    slider = f"{key}/slider"
    st.session_state[slider] = value
    left, right = st.columns([5, 3], vertical_alignment="bottom", gap="small", wrap=False)
    with left:
        if len(options) > 1:
            st.select_slider(label, options, key=slider, help=help_text, on_change=_copy, args=(slider, key))
        else:
            st.caption(label, help=help_text)
    with right:
        step = kind(1) if kind is int else 0.01
        typed = st.number_input(
            label,
            kind(p.low),
            kind(p.high),
            step=step,
            key=key,
            label_visibility="collapsed",
            format=None if kind is int else "%.4g",
        )
    return p.check(typed)


def _copy(source: str, target: str) -> None:
    st.session_state[target] = st.session_state[source]

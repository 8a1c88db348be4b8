"""Widgets for an operator's parameters, made from its description: a slider over typical values with a box
for odd ones beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from fusescope.ops.base import Parameter
from pages._ui.app import url
from pages._ui.kernels import mask_picker

_NOTHING = "nothing: one case"
_SHORT = {"seq": "sequence", "seq_k": "keys (seq_k)", "kv_heads": "KV heads", "head_dim": "head size"}


def label(p: Parameter) -> str:
    return _SHORT.get(p.name, p.name.replace("_", " "))


def sweep(state: url.State, op: str, parameters: tuple[Parameter, ...]) -> str | None:
    """The parameter to sweep over, None for a single case."""
    names = [p.name for p in parameters if p.sweep]
    if not names:
        return None
    key = state.seed("sweep", _NOTHING, url.one_of([_NOTHING, *names]), op)
    shown = {p.name: label(p) for p in parameters} | {_NOTHING: _NOTHING}
    chosen = st.selectbox(
        "sweep over",
        [_NOTHING, *names],
        key=key,
        format_func=shown.get,
        help="Several values of one parameter in one run",
    )
    state.keep("sweep", chosen, _NOTHING)
    return None if chosen == _NOTHING else chosen


def draw(
    state: url.State,
    op: str,
    parameters: tuple[Parameter, ...],
    swept: str | None,
    picture: Callable = lambda place: None,
) -> dict[str, list[Any]]:
    """One widget a parameter. Returns {name: values}: one value each, several for the swept one. Derived ones
    left empty: absent. ``picture`` is given the place of a mask's picture."""
    values: dict[str, list[Any]] = {}
    derived = [p for p in parameters if p.kind == "int" and p.default is None and p.name != swept]
    rare = derived + [p for p in parameters if p.kind in ("choice", "text") and p.name != swept]
    for p in sorted((p for p in parameters if p not in rare), key=lambda p: p.kind != "mask"):
        values |= _one(state, op, p, p.name == swept, picture)
    if rare:
        changed = any(p.name in state.query for p in rare)
        with st.expander(", ".join(label(p) for p in rare), expanded=changed):
            for p in rare:
                values |= _derived(state, op, p) if p in derived else _one(state, op, p, False, picture)
    return values


def _one(state: url.State, op: str, p: Parameter, swept: bool, picture: Callable) -> dict[str, list[Any]]:
    if p.kind == "mask":
        size = st.session_state.get(f"{state.page}/{op}/seq_k") or st.session_state.get(
            f"{state.page}/{op}/seq"
        )
        text, place = mask_picker.choose(state, p, size)
        picture(place)
        return {p.name: [text]}
    if swept:
        return {p.name: _several(state, op, p)}
    if p.kind == "int":
        return {p.name: [_whole(state, op, p)]}
    if p.kind == "choice":
        key = state.seed(p.name, p.default, url.one_of(p.choices), op)
        value = st.selectbox(label(p), p.choices, key=key, help=p.help)
    else:
        key = state.seed(p.name, "" if p.default is None else str(p.default), scope=op)
        value = st.text_input(label(p), key=key, help=p.help)
    state.keep(p.name, value, p.default)
    return {p.name: [value]} if value not in ("", None) else {}


def _whole(state: url.State, op: str, p: Parameter) -> int:
    """A slider over the typical values, and a box that takes any: whichever moved last decides."""
    key = state.seed(p.name, p.default, url.whole(p.low, p.high), op)
    slider = f"{key}/slider"
    if not p.typical:
        value = st.number_input(label(p), p.low, p.high, step=1, key=key, help=p.help)
        state.keep(p.name, value, p.default)
        return value
    options = sorted({*(t for t in p.typical), st.session_state[key]})
    st.session_state[slider] = st.session_state[key]
    left, right = st.columns([5, 3], vertical_alignment="bottom", gap="small", wrap=False)
    with left:
        st.select_slider(label(p), options, key=slider, help=p.help, on_change=_copy, args=(slider, key))
    with right:
        value = st.number_input(
            f"{label(p)}, typed", p.low, p.high, step=1, key=key, label_visibility="collapsed"
        )
    state.keep(p.name, value, p.default)
    return value


def _several(state: url.State, op: str, p: Parameter) -> list[int]:
    """The values of the swept parameter, typical ones offered, any other typed."""
    start = [str(t) for t in p.typical if t >= (p.default or 0)][:4] or [str(p.default)]
    one = url.whole(p.low, p.high)
    key = state.seed(f"{p.name}s", start, lambda text: [str(one(t)) for t in text.split(",")], op)
    offered = list(dict.fromkeys([*map(str, p.typical), *st.session_state[key]]))
    chosen = st.multiselect(
        f"{label(p)} values",
        offered,
        key=key,
        accept_new_options=True,
        help=f"{p.help}. Type a number for an odd value.",
    )
    state.keep(f"{p.name}s", ",".join(chosen), ",".join(start))
    if not chosen:
        raise ValueError(f"a sweep over {p.name} needs at least one value of it")
    numbers = []
    for text in chosen:
        try:
            numbers.append(one(text))
        except ValueError as error:
            raise ValueError(f"{p.name} = {text!r} cannot be swept: {error}") from None
    return sorted(set(numbers))


def _derived(state: url.State, op: str, p: Parameter) -> dict[str, list[Any]]:
    key = state.seed(p.name, None, url.whole(p.low, p.high), op)
    value = st.number_input(
        label(p), p.low, p.high, value=None, step=1, key=key, help=p.help, placeholder="derived"
    )
    state.keep(p.name, value)
    return {} if value is None else {p.name: [value]}


def _copy(source: str, target: str) -> None:
    st.session_state[target] = st.session_state[source]

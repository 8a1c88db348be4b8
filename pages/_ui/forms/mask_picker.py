"""A mask by name with a widget for each of its parameters, or from a file; and its small picture."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fusescope import masks
from fusescope.charts.escape import shown
from fusescope.charts.masks import thumbnail as small
from fusescope.core.schema import REQUIRED, Parameter, either
from pages._ui.app import cached_chart, url
from pages._ui.forms import fields, linked, mask_files
from pages._ui.widgets import style, told

FILE, NONE = "from a file", "none"
_EXACT = 1 << 21
"""Up to this many elements the picture and its density count every one; above, sampled rows."""
_WIDE, _LIST = 145, 220  # pixels of the boxes on a line: of a name, of a list of numbers
_ROWS = 256  # of them; of rows with more keys than _LONG one a pixel
_LONG = 1 << 17


def choose(
    state: url.State,
    slot: str,
    size: int,
    start: str,
    label: str = "mask",
    folded: bool = False,
    help: str = "",
) -> tuple[str | None, DeltaGenerator]:
    """(the mask as ``masks.parse`` reads it, None where none is chosen; the place for its picture).

    The slot names the URL's key and the session's; ``size`` is the number of keys, for the defaults;
    ``start`` is the mask to begin with (NONE: a mask is optional); ``folded`` puts the parameters behind a
    button.
    """
    home = state.key(slot)
    if state.opened or f"{home}/name" not in st.session_state:
        _from_url(state, slot, home, start)
    names = [*([NONE] if start == NONE else []), *masks.names(), FILE]
    name = st.selectbox(
        label, names, key=f"{home}/name", format_func=lambda n: n.replace("_", " "), help=help or None
    )
    _carry_over(home, name)
    if name == NONE:
        return None, st.container()
    if name == FILE:
        text, place = _file(home), st.container()
        linked.ask(state, f"{home}/file", {st.session_state[f"{home}/file"]} - {*mask_files.saved()})
    elif folded:
        left, right = st.columns(2, gap="small", wrap=False)
        place, definition = left.container(), masks.definition(name)
        with right:
            _formula(definition)
            if definition.PARAMETERS:
                with st.popover("Parameters", width="stretch"):
                    text = _parameters(state, home, definition, size)
            else:
                text = name
    else:
        place = st.container()
        _formula(masks.definition(name))
        text = _parameters(state, home, masks.definition(name), size)
    if text is not None:
        masks.parse(text)
        state.keep(slot, text, start)
    return text, place


def line(
    state: url.State,
    slot: str,
    size: int,
    start: str,
    row: DeltaGenerator,
    scope: str = "",
    help: str | None = None,
) -> str:
    """A mask by name as ``masks.parse`` reads it: a select box in ``row``, and for one with parameters their
    boxes on a line below what is drawn so far. One that is out of bounds is noted, for the page to refuse."""
    home = state.key(slot, scope)
    if state.opened or f"{home}/name" not in st.session_state:
        _from_url(state, slot, home, start, scope in state.scopes, files=False)
    known = {"label": "mask", "format_func": lambda n: n.replace("_", " "), "width": _WIDE}
    name = row.selectbox(options=masks.names(), key=f"{home}/name", help=help, **known)
    _carry_over(home, name)
    definition = masks.definition(name)
    if not definition.PARAMETERS:
        text = name
    else:
        boxes = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
        try:
            text = _parameters(state, home, definition, size, boxes)
            masks.parse(text)
        except ValueError as error:
            state.refused.append(str(error))
            return start
        boxes.caption(_formula_text(definition), help=definition.DESCRIPTION, width="content")
    state.keep(slot, text, start)
    return text


def pick(page: str, slot: str, name: str) -> None:
    """Put a mask of that name into a slot of a page, as ``_carry_over`` fills it (a callback)."""
    _put(f"{page}/{slot}", masks.Mask(name))


def put(page: str, slot: str, text: str) -> None:
    """Put a mask as ``masks.parse`` reads it into a slot of a page (a callback); ValueError for no mask."""
    given = masks.parse(text)
    st.session_state.pop(f"{page}/{slot}/drawn", None)
    if isinstance(given, masks.DenseMask):
        take_file(page, slot, given.path)
    else:
        _put(f"{page}/{slot}", given)


def take_file(page: str, slot: str, path: str) -> None:
    """Put a file into a slot of a page (a callback)."""
    st.session_state[f"{page}/{slot}/name"] = FILE
    st.session_state[f"{page}/{slot}/file"] = path


def thumbnail(text: str, seq_q: int, seq_k: int) -> None:
    """The picture under the controls."""
    theme, stamp = style.theme(), mask_files.stamp(text)
    shares, density, sampled = _picture(text, seq_q, seq_k, stamp)
    fig = cached_chart.once(
        ("thumbnail", text, stamp, seq_q, seq_k, theme),
        lambda: small.thumbnail(shares, seq_q, seq_k, density, theme),
    )
    st.plotly_chart(shown(fig), theme=None, key="mask/picture", config={"displayModeBar": False}, width=124)
    if sampled:
        st.caption(f"from {sampled} sampled rows")
    sizes = {"seq": str(seq_q)} | ({} if seq_k == seq_q else {"seq_k": str(seq_k)})
    st.page_link("pages/masks.py", label="Open in Masks →", query_params={"mask": text} | sizes)


def _from_url(
    state: url.State, slot: str, home: str, start: str, mine: bool = True, files: bool = True
) -> None:
    """``mine``: whether the URL's parameter belongs to this slot; ``files``: whether it may name a file."""
    st.session_state.pop(f"{home}/drawn", None)
    text = state.query.get(slot, start) if mine else start
    try:
        if not files and text.startswith("file:"):
            raise ValueError(f"must be {either(masks.names())}")
        given = None if text == start == NONE else masks.parse(text)
    except (ValueError, OSError) as error:
        state.ignored(slot, error)
        given = None if start == NONE else masks.parse(start)
    if given is None:
        st.session_state[f"{home}/name"] = NONE
        return
    if isinstance(given, masks.DenseMask):
        st.session_state[url.came_from_url(f"{home}/file")] = given.path
        take_file(state.page, slot, given.path)
        return
    _put(home, given)


def _put(home: str, given: masks.Mask) -> None:
    """Parameters that are not given take their defaults, whatever was typed before."""
    st.session_state[f"{home}/name"] = given.name
    for key in [k for k in st.session_state if str(k).startswith(f"{home}/{given.name}/")]:
        del st.session_state[key]
    known = {p.name: p for p in masks.definition(given.name).PARAMETERS}
    for name, value in given.values.items():
        key = f"{home}/{given.name}/{name}"
        st.session_state[key] = known[name].write(value) if known[name].kind.startswith("ints") else value
        st.session_state[f"{key}/default"] = None


def _carry_over(home: str, name: str) -> None:
    """Give a mask that was just chosen the parameters that were set for the one drawn before: two windows are
    compared at one width. Those that the new one does not take, or not that large, keep their defaults."""
    before, st.session_state[f"{home}/drawn"] = st.session_state.get(f"{home}/drawn"), name
    if before == name or not {before, name} <= {*masks.names()}:
        return
    known = {p.name: p for p in masks.definition(name).PARAMETERS}
    for p in masks.definition(before).PARAMETERS:
        old, new = f"{home}/{before}/{p.name}", f"{home}/{name}/{p.name}"
        value = st.session_state.get(old)
        if p.name not in known or value is None or value == st.session_state.get(f"{old}/default"):
            continue
        with contextlib.suppress(ValueError):
            known[p.name].read(value)
            st.session_state[new], st.session_state[f"{new}/default"] = value, None


def _file(home: str) -> str | None:
    key = f"{home}/file"
    chosen = st.session_state.get(key)
    path = st.selectbox(
        "file",
        list(dict.fromkeys([*mask_files.saved(), *([chosen] if chosen else [])])),
        key=key,
        index=None,
        accept_new_options=True,
        placeholder="choose an upload or type a path",
        format_func=lambda p: p.rpartition("/")[2],
        help=(
            "Boolean matrices uploaded on the Masks page, or the path of a .npy, .npz, .csv or .mtx; "
            "True = keep"
        ),
    )
    if not path:
        st.caption("Upload a matrix on the Masks page, or type the path of one.")
        return None
    text = f"file:{path}"
    mask_files.shape(text, mask_files.stamp(text))  # says what is wrong with it
    return text


def _formula(definition) -> None:
    st.caption(_formula_text(definition), help=definition.DESCRIPTION)


def _formula_text(definition) -> str:
    return "all positions kept" if definition.FORMULA == "always" else f"keep where {definition.FORMULA}"


def _parameters(
    state: url.State, home: str, definition, size: int, boxes: DeltaGenerator | None = None
) -> str:
    """The mask's text: its name and the parameters that differ from their defaults. ValueError for what is
    out of bounds, once all widgets are drawn: small ones in ``boxes``, if any."""
    parts, refused = [], []
    for p in definition.PARAMETERS:
        default = _length(p, size) if p.default is REQUIRED else p.default_for(size)
        given = _widget(state, f"{home}/{definition.NAME}/{p.name}", p, default, boxes)
        try:
            value = p.read(given)
        except ValueError as error:
            refused.append(error)
            continue
        if value != default or p.default is REQUIRED:
            parts.append(f"{p.name}={p.write(value)}")
    if refused:
        raise refused[0]
    return definition.NAME + (":" + ",".join(parts) if parts else "")


def _length(p: Parameter, size: int) -> Any:
    """A first value where a parameter has no default: a length of six tenths."""
    return p.check([max(1, size * 6 // 10)] if p.kind.startswith("ints") else p.low)


def _widget(state: url.State, key: str, p: Parameter, default: Any, boxes: DeltaGenerator | None) -> Any:
    """What the widget of a parameter shows, as ``Parameter.read`` takes it. Until it is touched it follows
    the default, which depends on the length."""
    shown = p.write(default) if p.kind.startswith("ints") else default
    before = f"{key}/default"
    session = st.session_state
    if key not in session or (before in session and session[key] == session[before]):
        told.tell(key, shown)
    session[before] = shown
    label, help_text = p.name.replace("_", " "), f"{p.help}; default {p.default_text}"
    box = st if boxes is None else boxes
    if p.kind == "bool":
        return box.toggle(label, key=key, help=help_text)
    if p.kind.startswith("ints"):
        wide = {} if boxes is None else {"width": _LIST}
        return box.text_input(label, key=key, help=help_text, **wide).strip()
    kind = float if p.kind == "float" else int
    if type(session[key]) is not kind:  # 5 where the parameter takes 0.5, too
        session[key] = kind(session[key])
    typical = {kind(t) for t in p.typical} | {kind(default)}
    needed = replace(p, default=REQUIRED, typical=tuple(typical))
    if boxes is not None:
        small = {"help": help_text, "width": fields.width(label)}
        return fields.number(state, label, key, replace(needed, name=label), boxes, **small)[0]
    return fields.slider(state, label, key, needed, help=help_text)[0]


@st.cache_data(max_entries=64, show_spinner=False)
def _picture(text: str, seq_q: int, seq_k: int, stamp: str) -> tuple[np.ndarray, float, int | None]:
    """(shares per pixel, density, of how many sampled rows, None where every element was counted); of the
    first sequence where a mask differs among them."""
    bound = masks.parse(text).bind(seq_q, seq_k)
    if seq_q * seq_k <= _EXACT:
        keep = _first(bound.dense())
        return small.shrink(keep), float(keep.mean()), None
    count = min(seq_q, _ROWS if seq_k <= _LONG else small.PIXELS)
    drawn = np.random.default_rng(0).random(count)  # one of each stretch: row 0 alone may see all keys
    rows = ((np.arange(count) + drawn) * seq_q / count).astype(int).tolist()
    shares, density = small.of_rows(_first(bound.block(row, row + 1)) for row in rows)
    return shares, density, len(rows)


def _first(keep: np.ndarray) -> np.ndarray:
    """Of the first sequence."""
    return keep[0] if keep.ndim == 3 else keep

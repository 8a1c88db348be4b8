"""Widgets whose value lives in the URL: seeded from it, drawn, and written back unless it is the default."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from fusescope.charts import glossary
from fusescope.core.records import Run
from fusescope.core.schema import Parameter
from pages._ui.app import url
from pages._ui.forms import linked
from pages._ui.widgets import number_box, told
from pages._ui.widgets.text import md

NARROW = 96
"""Pixels of the smallest box."""
IN_LINES = "contains"
"""How a box filters long lines, such as runs, by what is typed. Letters in the same order, Streamlit's own
way, are in nearly any line: "gpt" in "BERT-base, SDPA in a CUDA graph, fp16"."""
_TYPED = 112  # of the box next to a slider


def pick(
    state: url.State,
    name: str,
    label: str,
    options: Iterable,
    default: Any = None,
    scope: str = "",
    box: Any = st,
    form: str = "selectbox",
    **settings,
) -> Any:
    """One of ``options`` from a select box in ``box``; the first is the default. A value that the options no
    longer have gives way to the default. A label that is a term of the glossary says on hover
    what it means."""
    options = list(options)
    default = options[0] if default is None else default
    key = seeded(state, name, options, default, scope)
    settings.setdefault("help", glossary.about(label))
    value = getattr(box, form)(label, options, key=key, **settings)
    state.keep(name, value, default)
    return value


def report(
    state: url.State, name: str, found: Sequence[Run], line: Callable[[Run], str], shown: str, box: Any = st
) -> Run:
    """One of the runs, the first unless the URL names another, or the session does under ``shown``: the one
    that was just started."""
    runs = {run.id: run for run in found}
    if wanted := st.session_state.pop(shown, None):
        st.session_state[state.seed(name, found[0].id)] = wanted
    return runs[
        pick(state, name, "report", runs, box=box, filter_mode=IN_LINES, format_func=lambda i: line(runs[i]))
    ]


def segments(
    state: url.State, name: str, label: str, options: Iterable, default: Any = None, **settings
) -> Any:
    """The same as a row of buttons, which wraps where the screen is narrow."""
    settings.setdefault("wrap", True)
    return pick(state, name, label, options, default, form="segmented_control", required=True, **settings)


def view(state: url.State, name: str, options: Iterable, default: Any = None, **settings) -> Any:
    """A row of buttons without a label: the views or parts of a page."""
    return segments(state, name, name, options, default, label_visibility="collapsed", **settings)


def whole(
    state: url.State,
    name: str,
    label: str,
    low: int,
    high: int,
    default: int,
    scope: str = "",
    box: Any = st,
    **settings,
) -> int:
    """A whole number from ``low`` to ``high`` in a box. What is typed and is none is for ``refuse`` to
    refuse."""
    parameter = Parameter(label, "int", low=low, high=high)
    return kept(state, name, label, parameter, default, scope, box, **settings)


def perhaps(
    state: url.State,
    name: str,
    label: str,
    low: int | None,
    high: int | None,
    scope: str = "",
    box: Any = st,
    **settings,
) -> int | None:
    """The same in a box that is empty at first and may stay so: None."""
    parameter = Parameter(label, "int", None, low=low, high=high)
    return kept(state, name, label, parameter, None, scope, box, **settings)


def kept(
    state: url.State,
    name: str,
    label: str,
    parameter: Parameter,
    default: number_box.Number,
    scope: str = "",
    box: Any = st,
    **settings,
) -> Any:
    """A number in a box, as the parameter reads it, and in the URL unless it is the default."""
    key = state.seed(name, default, url.reader(parameter), scope)
    value, good = number(state, label, key, parameter, box, said=box is st, **settings)
    if good:
        state.keep(name, value, default)
    return value


def number(
    state: url.State,
    label: str,
    key: str,
    parameter: Parameter,
    box: Any = st,
    said: bool = False,
    place: str = "",
    **settings,
) -> tuple[Any, bool]:
    """A box for the number that the session has under ``key``; and whether it shows it: what is typed and is
    no such number is for ``refuse`` to refuse. ``said``: and is refused under the box, too, for which a row
    of boxes has no room. ``place``: see ``slider``."""
    fresh = state.opened
    value, wrong = number_box.draw(label, key, parameter, box, fresh=fresh, place=place, **settings)
    if wrong:
        state.refused.append(wrong)
    if wrong and said:
        st.caption(f":red[{md(wrong)}]")
    return value, not wrong


def refuse(state: url.State) -> None:
    """ValueError where a box above shows what is no number, or one that is out of bounds."""
    if state.refused:
        raise ValueError("; ".join(state.refused))


def yes(state: url.State, name: str, label: str, scope: str = "", box: Any = st, **settings) -> bool:
    """A toggle, off at first; "yes" in the URL."""
    value = box.toggle(label, key=state.seed(name, False, lambda text: text == "yes", scope), **settings)
    state.keep(name, "yes" if value else "")
    return value


def text(
    state: url.State, name: str, label: str, scope: str = "", box: Any = st, default: str = "", **settings
) -> str:
    """A line of text without surrounding spaces."""
    value = box.text_input(label, key=state.seed(name, default, scope=scope), **settings).strip()
    state.keep(name, value, default)
    return value


def path(state: url.State, name: str, label: str, scope: str = "", box: Any = st, **settings) -> str:
    """A file or folder of the server's machine; one that came by the URL must be confirmed."""
    given = text(state, name, label, scope, box, **settings)
    linked.ask(state, state.key(name, scope), [given])
    return given


def slider(
    state: url.State, label: str, key: str, parameter: Parameter, place: str = "", **settings
) -> tuple[Any, bool]:
    """A slider over the typical values of a parameter with a box next to it that takes any: whichever moved
    last decides. Returns as ``number`` does. ``place``: the widgets' own key, where they show one of several
    numbers (a size of each model) in turn: a browser then moves them instead of making others."""
    place = place or key
    known = sorted({*parameter.typical, st.session_state[key]})
    linked, offered = f"{place}/slider", f"{place}/offered"
    if st.session_state.get(offered) != known:  # the browser counts places, and this one may have moved
        st.session_state.pop(linked, None)
        st.session_state[offered] = known
    told.tell(linked, st.session_state[key])
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="small", wrap=False)
    if len(known) > 1:
        row.select_slider(label, known, key=linked, on_change=copy, args=(linked, key), **settings)
    else:
        row.caption(label, **settings)
    box = {"box": row, "place": place, "label_visibility": "collapsed", "width": _TYPED}
    return number(state, f"{label}, typed", key, replace(parameter, name=label), said=True, **box)


def width(label: str) -> int:
    """Pixels of a small box: as wide as its label with the question mark."""
    return max(NARROW, 50 + 7 * len(label))


def copy(source: str, target: str) -> None:
    """Copy one value of the session to another (a callback)."""
    st.session_state[target] = st.session_state[source]


def seeded(state: url.State, name: str, options: list, default: Any, scope: str = "") -> str:
    """The session's key of a choice among ``options``, which may have changed since the last drawing."""
    written = {str(option): option for option in options}  # 5.0, as ``keep`` writes it, or 5
    known = {f"{o:g}" if isinstance(o, float) else str(o): o for o in options}
    read = url.one_of(list(known))
    value = lambda text: written[text] if text in written else known[read(text)]  # noqa: E731
    key = state.seed(name, default, value, scope)
    if st.session_state[key] not in options:
        st.session_state[key] = default
    return key


def relabelled(key: str, label: str) -> None:
    """Before a select box is drawn: that its value is now called ``label``. A browser keeps the label that it
    has of a value, unless it is told the value again."""
    if st.session_state.get(f"{key}/label") not in (None, label):
        st.session_state[key] = st.session_state[key]
    st.session_state[f"{key}/label"] = label

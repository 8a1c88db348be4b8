"""Is my function correct, and how fast against eager? One field, one button, the result under it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import streamlit as st

from fusescope import ops
from fusescope.charts import captions
from fusescope.core.records import BenchSpec
from fusescope.ops.common import user
from pages._ui.answer import matching
from pages._ui.app import callbacks, device, run_data, url
from pages._ui.forms import busy, fields, linked, own, own_examples, parameters, run_panel
from pages._ui.kernels import own_guess, page
from pages._ui.widgets.text import md

MODES = {"Compare implementations": "", "Check my function": "own"}
_EAGER = "eager"
_FILE, _FUNCTION, _GUESSED = "kernels/own", "kernels/own_function", "kernels/own_guessed"
_RESOLVED = "kernels/own_resolved"
_CHOSEN = "kernels/own_operator_chosen"
"""Whether the operator was chosen by hand since the last function was found."""


def mode(state: url.State) -> bool:
    """Whether one function is checked, not implementations compared."""
    words = {v: k for k, v in MODES.items()}
    read = lambda text: words[url.one_of(list(words))(text)]  # noqa: E731
    key = state.seed("do", next(iter(MODES)), read)
    chosen = st.segmented_control(
        "do", list(MODES), key=key, label_visibility="collapsed", required=True, on_change=_switched
    )
    state.keep("do", MODES[chosen])
    return bool(MODES[chosen])


def draw(state: url.State) -> None:
    """The whole mode: the field with its button, and the result of the function that it names."""
    problems: list[str] = []
    with st.container(border=True, key="own"):
        row = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
        name, op, found = _function(state, row, problems)
        button = row.container(width="content")  # filled last: a number of the shape may be refused
        if name:
            linked.ask(state, _FILE, [name])
        said = st.container(gap="xsmall")
        dtype, values = _shape(state, op, problems)
        spec = None
        with run_panel.collect(problems):
            cases = [ops.load(op).validate(case) for case in run_panel.swept(values)] if values else []
            fields.refuse(state)
            linked.refuse(state)
            if name and cases and not problems:
                spec = BenchSpec(op, (_EAGER, name), tuple(cases), _EAGER, dtype, device.current(), "both")
        go = {"type": "primary", "key": "own/run", "shortcut": "Ctrl+Enter", "disabled": bool(state.refused)}
        pressed = button.button("Compare mine with eager", **go)
    with st.container(key="result"):
        json = spec and spec.to_json()
        run_id = matching.shown(state, "bench", None, json, pressed, page.COMPARED, "a benchmark")
        if run_id and name not in (run_data.read(run_id).spec.get("impls") or ()):
            run_id = None  # of another function
        with said:
            _say(op, spec, found, problems, pressed)
            if spec and not run_id:
                busy.offer()
        if run_id:
            page.of_run(state, run_id, json)


def _function(state: url.State, row, problems: list[str]) -> tuple[str, str, user.Signature | None]:
    """(path:function or "", the operator, the function's signature where its source says it)."""
    key = state.seed("own", "", _of_link)
    text = row.text_input(
        "your Python file",
        key=key,
        placeholder="path/to/file.py, or path/to/file.py:function",
        help="Any Python function: plain torch, Triton, CuTe DSL, an extension. It runs in the job's own "
        "process. A relative path starts in the folder in which the app was started.",
    ).strip()
    titles, found, name, guess = ops.titles(), None, "", None
    if text:
        with run_panel.collect(problems):
            path, _, wanted = text.rpartition(":") if ops.is_user(text) else (text, "", "")
            if not path.endswith(".py"):
                raise ValueError(f"write the path of a Python file, path/to/file.py, not {text!r}")
            name, found, guess = _chosen(row, path, wanted)
            ops.describe("", name)
    st.session_state[_RESOLVED] = name
    operator = fields.seeded(state, "op", list(titles), "softmax")
    if name and st.session_state.get(_GUESSED) != name:
        st.session_state[_GUESSED] = name
        chosen = st.session_state.pop(_CHOSEN, False) or (state.opened and "op" in state.query)
        if guess and not chosen:
            st.session_state[operator] = guess
    op = row.selectbox(
        "operator",
        list(titles),
        key=operator,
        format_func=titles.get,
        width=230,
        on_change=lambda: st.session_state.update({_CHOSEN: True}),
        help="What the function computes: guessed from its name and parameters unless it is chosen first",
    )
    state.scopes.add(state.query.get("op", op))
    state.keep("op", op)
    state.keep("own", name)
    if found and (text := own_guess.misfit(found, op)):
        problems.append(text)
    return name, op, found


def _chosen(row, path: str, wanted: str) -> tuple[str, user.Signature | None, str | None]:
    """(path:function, its signature, its operator as guessed): the function named, or one of the file's."""
    listed, stem = user.functions(path) if not wanted else _listed(path), Path(path).stem
    known = {f.name: f for f in listed}
    if not wanted:
        wanted = own_guess.best(listed, stem)[0].name
        if len(known) > 1:
            if st.session_state.get(_FUNCTION) not in known:
                st.session_state[_FUNCTION] = wanted
            wanted = row.selectbox("function", list(known), key=_FUNCTION, width=170)
    found = known.get(wanted)
    guess = own_guess.best([found or user.Signature(wanted, (), 0, True)], stem)[1]
    return f"{path}:{wanted}", found, guess


def _listed(path: str) -> list[user.Signature]:
    """The functions of a file, none where it has none that is known: the name may be bound otherwise."""
    try:
        return user.functions(path)
    except ValueError:
        return []


def _shape(state: url.State, op: str, problems: list[str]) -> tuple[str, Mapping]:
    """(dtype, values of the operator's parameters), folded: the usual ones are a start."""
    module = ops.load(op)
    with st.expander("Shape and dtype"), st.columns(2)[0]:
        half = device.is_gpu() and "float16" in module.DTYPES
        dtype = fields.pick(
            state, "dtype", "dtype", module.DTYPES, "float16" if half else module.DTYPES[0], op
        )
        values: Mapping = {}
        with run_panel.collect(problems):
            values = parameters.draw(state, op, module.PARAMETERS, None)
    return dtype, values


def _say(op: str, spec: BenchSpec | None, found, problems: list[str], pressed: bool) -> None:
    """Under the field: what is wrong, or what pressing the button does."""
    if problems:
        st.error(md(problems[0]))
    elif spec is None:
        called = f" It is {own_examples.called(op)}." if own_examples.has(op) else ""
        text = f"Type the path of the Python file that holds your function.{called}"
        (st.warning if pressed else st.caption)(text)
        if own_examples.has(op):
            st.button(
                "Write an example and use it",
                key=f"own/example/{op}",
                on_click=callbacks.careful(own.add_example),
                args=(op, _FILE),
                help=f"Writes {own_examples.folder() / f'my_{op}.py'} unless it is there, for you to edit",
            )
    else:
        what = f"{md(str(found))} as {md(ops.load(op).TITLE)}" if found else md(ops.load(op).TITLE)
        shape = md(f"{captions.case_of(captions.told(spec.cases[0]))}, {spec.dtype}")
        st.caption(
            f"**{what}** at {shape}: checked against a float64 reference, then timed in turn with eager. "
            f"{run_panel.cost('bench', spec, 'implementation')}."
        )


def _of_link(text: str) -> str:
    """A link names the function too: ``linked`` asks about what it names, not about what is chosen here."""
    if not ops.is_user(text):
        raise ValueError("must be path/to/file.py:function")
    return text


def _switched() -> None:
    """The other mode takes the function that was found (a callback)."""
    words = st.session_state.get(_FILE, "").split()
    if found := st.session_state.get(_RESOLVED):
        st.session_state[_FILE] = found
    elif words:
        st.session_state[_FILE] = words[0]

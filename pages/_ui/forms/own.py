"""The user's own kernels in a comparison: a function of a file, typed, linked or written as an example."""

from __future__ import annotations

import streamlit as st

from fusescope import ops
from pages._ui.app import callbacks, url
from pages._ui.forms import linked, own_examples
from pages._ui.widgets.text import md


def choose(state: url.State, op: str) -> tuple[list[str], str]:
    """(the user's own callables that exist, what is wrong with the others): a button that opens the field."""
    key = state.seed("own", "")
    typed = len(st.session_state[key].split())
    label = f"Your own kernels ({typed})" if typed else "Add your own kernel…"
    with st.popover(label, icon=":material/add:", width="stretch"):
        text = st.text_input(
            "file.py:function",
            key=key,
            placeholder="path/to/file.py:function",
            help="Any Python function: plain torch, Triton, CuTe DSL, an extension. Several, separated by "
            "spaces. It runs in the job's own process.",
        )
        _how(op, key)
    state.keep("own", text.strip(), "")
    found, mistake = [], ""
    for word in text.split():
        try:
            if not ops.is_user(word):
                raise ValueError(f"write your own implementation as path/to/file.py:function, not {word!r}")
            ops.describe("", word)
            found.append(word)
        except (ValueError, OSError) as error:
            mistake = mistake or str(error)
    if found:
        linked.ask(state, key, found)
        st.caption("Yours: " + ", ".join(md(f) for f in found))
    return found, mistake


def _how(op: str, key: str) -> None:
    """How the function is called, what is compared, and the example."""
    called = f" is {own_examples.called(op)}, and" if own_examples.has(op) else ""
    st.markdown(
        f"Your function{called} computes **{md(ops.load(op).TITLE)}** at the shape of this form. It is "
        "checked against the float64 reference, then timed against eager."
    )
    if own_examples.has(op):
        st.button(
            "Write an example and add it",
            key=f"{key}/example/{op}",
            on_click=callbacks.careful(add_example),
            args=(op, key),
            help=f"Writes {own_examples.folder() / f'my_{op}.py'} unless it is there, for you to edit",
        )
    st.page_link("pages/help.py", label="How to write a kernel →", query_params={"doc": "own-kernel"})


def add_example(op: str, key: str) -> None:
    """Write the operator's example and add it to the field of that key (a callback)."""
    written = own_examples.write(op, ops.load(op).TITLE)
    words = st.session_state.get(key, "").split()
    if written not in words:
        st.session_state[key] = " ".join([*words, written])

"""A kernel's source, PTX and SASS, each made only when shown."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from fusescope.core.errors import BuildError
from fusescope.core.sources import families
from fusescope.kernels import inspect
from pages._ui.app import url
from pages._ui.build.page import known_archs
from pages._ui.forms import fields
from pages._ui.widgets import elements

_MOST = 40_000
"""Characters shown of a listing, in whole lines; the download has all of it. A browser makes an element of
each line, and of each word where it is coloured: 200,000 characters without colours took it 0.7 s."""
_WHAT = ("Source", "PTX", "SASS")


@dataclass(frozen=True)
class Kernel:
    """The kernel under the sliders and in the tabs; arch is "" for a CPU kernel."""

    family: str
    name: str
    arch: str
    idea: str


def choose(state: url.State) -> Kernel:
    """Family, kernel and architecture in a row."""
    st.subheader("One kernel", anchor=False)
    known = families()
    a, b, c = st.columns([1, 2, 1])
    first = "attention" if "attention" in known else next(iter(known))
    family = fields.pick(state, "of", "family", known, first, box=a)
    names = [v.name for v in known[family].variants]
    with b:
        key = state.seed("kernel", names[0])
        if st.session_state[key] not in names:
            if state.opened and "kernel" in state.query:
                state.ignored("kernel", f"must be one of {', '.join(names)}")
            st.session_state[key] = names[0]
        name = st.selectbox("kernel", names, key=key)
        state.keep("kernel", name, names[0])
    variant = known[family].variant(name)
    arch = ""
    if variant.device == "cuda":
        archs = [x for x in known_archs() if x in variant.archs] or list(variant.archs)
        arch = fields.pick(state, "arch", "architecture", archs, archs[-1], box=c)
    st.caption(variant.idea)
    return Kernel(family, name, arch, variant.idea)


def draw(state: url.State, kernel: Kernel) -> None:
    """The chosen listing with its download."""
    options = _WHAT if kernel.arch else _WHAT[:1]
    what = fields.view(state, "listing", options)
    try:
        with st.spinner(f"{what} of {kernel.name}", show_time=True):
            text = _listing(what, kernel)
    except BuildError as error:
        st.error(str(error))
        return
    suffix = {"Source": "cu" if kernel.arch else "cpp", "PTX": "ptx", "SASS": "sass"}[what]
    shown, language = text, "cpp" if what == "Source" else "nasm"
    if len(text) > _MOST:
        shown, language = text[:_MOST].rpartition("\n")[0] or text[:_MOST], None
    elements.listing(shown, language, 480, line_numbers=True)
    if shown is not text:
        first, lines = len(shown.splitlines()), len(text.splitlines())
        st.caption(f"The first {first:,} of {lines:,} lines, without colours; the download has all.")
    st.download_button(
        f"Download {what}",
        data=text,
        file_name=f"{kernel.family}-{kernel.name}{'-' + kernel.arch if what != 'Source' else ''}.{suffix}",
        on_click="ignore",
        type="tertiary",
        key=f"build/download/{what}",
    )


def _listing(what: str, kernel: Kernel) -> str:
    if what == "Source":
        return inspect.source(kernel.family, kernel.name)
    return (inspect.ptx if what == "PTX" else inspect.sass)(kernel.family, kernel.name, kernel.arch)

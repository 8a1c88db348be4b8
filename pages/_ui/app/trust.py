"""Buttons that repeat an imported run: what it names is shown, and must be confirmed, first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from fusescope.core.foreign import code
from fusescope.core.records import Run
from pages._ui.app import callbacks


def button(
    label: str,
    key: str,
    run: Run,
    spec: Mapping[str, Any],
    work: Callable[..., None],
    args: tuple = (),
    **settings,
) -> None:
    """A button that calls ``work(*args)``. Where the run was imported and ``spec`` names files, it opens a
    list of them with the button that takes them; refusals are shown by the frame."""

    def checked() -> None:
        code.check(run, spec, trust=True)
        work(*args)

    files = code.named(spec) if run.imported else []
    click = {"key": key, "on_click": callbacks.careful(checked)}
    if not files:
        st.button(label, **click, **settings)
        return
    with st.popover(f"{label} …", help=settings.get("help"), width=settings.get("width", "content")):
        st.markdown("This run was imported. It names files of this machine, which run or are read as you:")
        st.code("\n".join(files), language=None, wrap_lines=True)
        st.button(f"I know these files: {label.lower()}", type="primary", **click)

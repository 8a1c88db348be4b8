"""The occupancy calculator on the Build page, started from the compiler's figures of the chosen kernel."""

from __future__ import annotations

import streamlit as st

from fusescope.kernels import report
from pages._ui.app import url
from pages._ui.build.source import Kernel
from pages._ui.forms import occupancy


@st.cache_data(ttl=3, show_spinner=False)
def _compiled(family: str, name: str, arch: str) -> tuple[int, int] | None:
    """(registers, static shared bytes) of the kernel's function that uses most; None where it is not
    built."""
    found = report.resources(family, name, arch)
    return (max(r.registers for r in found), max(r.shared for r in found)) if found else None


def draw(state: url.State, kernel: Kernel) -> None:
    """The sliders, started from the compiler's figures of the kernel."""
    with st.expander("Occupancy calculator", expanded=True):
        if not kernel.arch:
            st.caption("Choose a CUDA kernel above to start from its figures, or move the sliders.")
        occupancy.what_if(state, *_compiled_start(kernel))


def _compiled_start(kernel: Kernel) -> tuple[dict, str]:
    """The compiler's figures of a kernel to start the sliders from, and the label of that start."""
    figures = _compiled(kernel.family, kernel.name, kernel.arch) if kernel.arch else None
    start = {}
    if figures:
        start |= {"registers": figures[0], "static": figures[1]}
    if kernel.arch:
        digits = kernel.arch.removeprefix("sm_").rstrip("af")
        start["cc"] = f"{digits[:-1]}.{digits[-1]}"
    return start, f"{kernel.family}/{kernel.name}/{kernel.arch}/{figures}"

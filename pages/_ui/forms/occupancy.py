"""The occupancy calculator: sliders, the limiter by name, and the staircase around the chosen point."""

from __future__ import annotations

import streamlit as st

from fusescope.analysis.occupancy import LIMITS, theoretical
from fusescope.charts import numbers
from fusescope.charts.escape import shown
from fusescope.charts.numbers import plural
from fusescope.charts.profile import occupancy as stairs
from fusescope.core.schema import Parameter
from pages._ui.app import cached_chart, url
from pages._ui.forms import fields
from pages._ui.widgets import screen, style, told
from pages._ui.widgets.text import md, sentence

_CCS = [f"{a}.{b}" for a, b in LIMITS]
_BLOCKS = list(range(32, 1025, 32))
_REGISTERS = list(range(16, 256))
_SCOPE = "occ"


def what_if(state: url.State, start: dict, label: str) -> None:
    """Sliders, the result in a sentence, and two staircases.

    start: cc, block, registers, static, dynamic (some of them) to begin with, and again whenever ``label``
    names another kernel.
    """
    state.scopes.add(_SCOPE)
    key = _seed(state, start, label)
    a, b, c, d, e = st.columns((5, 5, 5, 6, 6), gap="small")
    with a:
        cc = st.selectbox("compute capability", _CCS, key=f"{key}/cc")
    limits = LIMITS[tuple(int(x) for x in cc.split("."))]
    with b:
        block = st.select_slider("threads per block", _BLOCKS, key=f"{key}/block")
    with c:
        registers = st.slider("registers per thread", 16, 255, key=f"{key}/registers")
    boxes = {"static": d, "dynamic": e}
    static, dynamic = (
        _shared(state, name, f"{key}/{name}", limits.opt_in, box) for name, box in boxes.items()
    )
    for name in ("cc", "block", "registers", "static", "dynamic"):
        state.keep(name, st.session_state[f"{key}/{name}"])
    try:
        fields.refuse(state)
    except ValueError as error:
        st.error(md(sentence(error)))
        return
    now = theoretical(cc, block, registers, static, dynamic)
    st.markdown(
        f"**{numbers.percent(now.occupancy)}** theoretical occupancy: {plural(now.active_blocks, 'block')}, "
        f"{now.active_warps} of {limits.warps} warps per SM; limited by **{now.limiter}**"
        + (f" ({now.reason})" if now.reason else "")
        + "."
    )
    _stairs(cc, block, registers, static, dynamic)
    st.caption(
        "Low occupancy limits latency hiding; high occupancy alone does not mean fast. Clusters, extra "
        "barriers and a custom "
        "shared-memory carve-out are not modelled."
    )


def _shared(state: url.State, name: str, key: str, most: int, box) -> int:
    """Bytes of shared memory in a box."""
    label = f"{name} shared (B)"
    return fields.number(state, label, key, Parameter(label, "int", low=0, high=most), box)[0]


def _stairs(cc: str, block: int, registers: int, static: int, dynamic: int) -> None:
    chosen, theme = (cc, block, registers, static, dynamic), style.theme()
    settings = dict(theme=None, width="stretch", config={"displayModeBar": False})
    left, right = st.columns(2)
    room = screen.characters(0.5)
    by_registers = cached_chart.once(("occ/registers", *chosen, theme), lambda: _by_registers(*chosen, theme))
    left.plotly_chart(shown(by_registers, room), key="occ/registers", **settings)
    by_block = cached_chart.once(("occ/block", *chosen, theme), lambda: _by_block(*chosen, theme))
    right.plotly_chart(shown(by_block, room), key="occ/block", **settings)


def _by_registers(cc, block, registers, static, dynamic, theme):
    shares = [theoretical(cc, block, r, static, dynamic).occupancy for r in _REGISTERS]
    about = _about(cc, block, registers, static, dynamic)
    return stairs.stairs(_REGISTERS, shares, registers, "registers", "per thread", about, theme)


def _by_block(cc, block, registers, static, dynamic, theme):
    shares = [theoretical(cc, b, registers, static, dynamic).occupancy for b in _BLOCKS]
    about = _about(cc, block, registers, static, dynamic)
    return stairs.stairs(_BLOCKS, shares, block, "threads", "per block", about, theme)


def _about(cc, block, registers, static, dynamic) -> str:
    shared = numbers.size(static + dynamic)
    return f"compute capability {cc}, {block} threads, {registers} registers, {shared} shared"


def _seed(state: url.State, start: dict, label: str) -> str:
    """Start from the URL, and from the kernel's own figures whenever another kernel is chosen. Gives the
    beginning of the keys."""
    home = f"{state.page}/{_SCOPE}"
    begin = {"cc": "9.0", "block": 256, "registers": 64, "static": 0, "dynamic": 0} | {
        k: v for k, v in start.items() if v is not None
    }
    begin["cc"] = begin["cc"] if begin["cc"] in _CCS else "9.0"
    begin["registers"] = min(255, max(16, int(begin["registers"])))
    another = st.session_state.get(f"{home}/kernel") not in (None, label)
    st.session_state[f"{home}/kernel"] = label
    readers = {
        "cc": url.one_of(_CCS),
        "block": url.whole(32, 1024),
        "registers": url.whole(16, 255),
        "static": url.whole(0, 232448),
        "dynamic": url.whole(0, 232448),
    }
    for name, value in begin.items():
        key = state.seed(name, value, readers[name], _SCOPE)
        if another and name in start:
            st.session_state[key] = value
    most = LIMITS[tuple(int(x) for x in st.session_state[f"{home}/cc"].split("."))].opt_in
    for name in ("static", "dynamic"):
        told.tell(f"{home}/{name}", min(int(st.session_state[f"{home}/{name}"]), most))
    block = st.session_state[f"{home}/block"]
    told.tell(f"{home}/block", min(_BLOCKS, key=lambda b: abs(b - block)))
    return home

"""The device in use: picked once, kept on every page and in the URL, with a dot that says free, measuring or
throttled."""

from __future__ import annotations

import streamlit as st

from fusescope.core.machine import environment, nvml
from fusescope.jobs import submit
from pages._ui.app import url
from pages._ui.widgets import style
from pages._ui.widgets.text import escape


@st.cache_data(ttl=60, show_spinner=False)
def devices() -> list[str]:
    """ "cuda:0", … and "cpu", as this machine has them."""
    return environment.devices()


@st.cache_data(ttl=300, show_spinner=False)
def facts(device: str) -> dict:
    """What is known of a device: name, architecture, compute capability, memory."""
    return environment.collect(device)


def current() -> str:
    """The chosen device, e.g. "cuda:0"."""
    chosen = st.session_state.get("device")
    return chosen if chosen in devices() else devices()[0]


def is_gpu() -> bool:
    return current() != "cpu"


def panel(state: url.State) -> None:
    """The device in the frame: a picker where there are several, its name, and its state now."""
    known = devices()
    if "device" in state.query and state.opened:
        try:
            st.session_state["device"] = url.one_of(known)(state.query["device"])
        except ValueError as error:
            state.ignored("device", f"{error}; {current()} is used instead")
    st.divider()
    if len(known) > 1:
        st.session_state["device/widget"] = current()
        st.selectbox(
            "Device",
            known,
            key="device/widget",
            on_change=_picked,
            format_func=lambda d: f"{d} · {_short(facts(d))}",
        )
    status()


def keep(state: url.State) -> None:
    """The device in the URL, unless it is the first one."""
    state.keep("device", current(), devices()[0])


@st.fragment(run_every=3.0)
def status() -> None:
    """Name and dot, renewed on their own."""
    device = current()
    busy = [job for job in submit.queue() if job["device"] == device and job["place"] == 0]
    faults = throttled(facts(device).get("device_uuid"))
    if faults:
        text = style.dot("throttled", f"throttled: {', '.join(faults)}")
    elif busy:
        text = style.dot("measuring", "measuring")
    else:
        text = style.dot("free", "free")
    name = facts(device).get("device_name") or device
    st.html(
        f'<div class="fs-small"><b>{escape(name)}</b><br>'
        f'{text}<span class="fs-muted"> · {device}</span></div>'
    )


def throttled(uuid: str | None) -> list[str]:
    """Why the GPU runs below its clocks now, by NVML; empty on the CPU and where NVML does not answer."""
    if not uuid:
        return []
    try:
        return nvml.faults(nvml.Reader(uuid).reasons() or 0)
    except nvml.NvmlError:
        return []


def _picked() -> None:
    st.session_state["device"] = st.session_state["device/widget"]


def _short(known: dict) -> str:
    return str(known.get("device_name") or "").removeprefix("NVIDIA ").removeprefix("GeForce ")[:24]

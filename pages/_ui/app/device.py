"""The device in use: picked once, kept on every page and in the URL, with a dot: free, measuring or
throttled."""

from __future__ import annotations

import contextlib
import os

import streamlit as st

from fusescope.charts import numbers
from fusescope.core.machine import environment, nvml, usage
from pages._ui.app import url
from pages._ui.widgets import style, told
from pages._ui.widgets.text import escape, md

QUOTED = "NVIDIA H200"
"""The device that documents quote: its recorded runs answer where this machine has no GPU that was
measured."""


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
    """The device in the frame: a picker where there are several."""
    known = devices()
    if "device" in state.query and state.opened:
        try:
            st.session_state["device"] = url.one_of(known)(state.query["device"])
        except ValueError as error:
            state.ignored("device", f"{error}; {current()} is used instead")
    st.divider()
    if len(known) > 1:
        told.tell("device/widget", current())
        st.selectbox(
            "Device",
            known,
            key="device/widget",
            on_change=_picked,
            format_func=lambda d: f"{d} · {_short(facts(d))}",
        )


def keep(state: url.State) -> None:
    """The device in the URL, unless it is the first one."""
    state.keep("device", current(), devices()[0])


def status(queue: list[dict]) -> None:
    """Name, dot and how many jobs wait, which a small screen may not show; ``queue``: the live jobs."""
    device = current()
    waiting = sum(job["device"] == device and (job["place"] or 0) > 0 for job in queue)
    busy = [job for job in queue if job["device"] == device and job["place"] == 0]
    faults = throttled(facts(device).get("device_uuid"))
    if faults:
        text = style.dot("throttled", f"throttled: {', '.join(faults)}")
    elif busy:
        text = style.dot("measuring", "measuring")
    else:
        text = style.dot("free", "free")
    name = facts(device).get("device_name") or device
    waits = f" · {waiting:,}&nbsp;queued" if waiting else ""
    st.html(
        f'<div class="fs-small"><b>{escape(name)}</b><br>'
        f'{text}<span class="fs-muted"> · {device}{waits}</span></div>'
    )


def live() -> None:
    """What the device and the machine do now, in a popover; nothing is read or renewed while it is closed."""
    panel = st.popover("Live utilisation", key="device/live", on_change="rerun", type="tertiary")
    if panel.open:
        with panel:
            _usage()


@st.fragment(run_every=2.0)
def _usage() -> None:
    where = current()
    found = usage.gpu(uuid) if (uuid := facts(where).get("device_uuid")) else {}
    rows = _cpu_rows() if isinstance(found, str) else gpu_rows(found) + _cpu_rows()
    if isinstance(found, str):
        st.caption(md(found))
    cells = "".join(f'<tr><td>{name}</td><td class="fs-right">{value}</td></tr>' for name, value in rows)
    st.html(f'<div class="fs-table"><table><tbody>{cells}</tbody></table></div>')


def gpu_rows(found: dict) -> list[tuple[str, str]]:
    """NVML's figures that this GPU gives, with their units."""
    used, total = found.get("memory_used_bytes"), found.get("memory_total_bytes")
    reasons = ", ".join(nvml.named(found["reasons"])) if found.get("reasons") else None
    known = (
        ("GPU utilisation", found.get("gpu_percent"), "{} %"),
        ("Memory controller busy", found.get("memory_percent"), "{} %"),
        ("GPU memory", f"{numbers.size(used)} of {numbers.size(total)}" if total else None, "{}"),
        ("SM clock", found.get("sm_mhz"), "{} MHz"),
        ("Memory clock", found.get("memory_mhz"), "{} MHz"),
        ("Clock limited by", reasons or None, "{}"),
        ("Power", found.get("power_w"), "{:.0f} W"),
        ("Temperature", found.get("temperature_c"), "{} °C"),
    )
    return [(name, form.format(value)) for name, value, form in known if value is not None]


def _cpu_rows() -> list[tuple[str, str]]:
    share, memory = _cpus().read(), usage.memory()
    rows = [(f"CPU load ({os.cpu_count()} CPUs)", numbers.NA if share is None else f"{100 * share:.0f} %")]
    with contextlib.suppress(OSError):
        rows.append(("Load average (1 min)", f"{os.getloadavg()[0]:.1f}"))
    if memory:
        rows.append(("Memory", f"{numbers.size(memory[0])} of {numbers.size(memory[1])}"))
    return rows


@st.cache_resource
def _cpus() -> usage.Cpus:
    return usage.Cpus()


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

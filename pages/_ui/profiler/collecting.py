"""Profiling an operator or a model now: with torch.profiler, or with Nsight where it is installed."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from fusescope import models, ops
from fusescope.charts.colours import short
from fusescope.core.records import DTYPES
from fusescope.jobs import submit
from pages._ui.app import callbacks, device, url
from pages._ui.kernels import mask_picker, parameters
from pages._ui.widgets.text import md, sentence

TOOLS = {"torch.profiler": "trace", "Nsight Compute": "ncu", "Nsight Systems": "nsys"}
_WHAT = {
    "trace": "Five calls after a warm-up: operators, kernels, launches, gaps, modules of a model; clocks and power beside them.",
    "ncu": "Every kernel of one call is replayed with hardware counters: speed of light, measured occupancy, stall reasons, moved bytes. "
    "Its times are no latencies.",
    "nsys": "One call on a time line, without torch.profiler's own cost.",
}
_OWN = "my own list"
_METRICS = ("standard", "light", "detailed", "full", _OWN)


def draw(state: url.State, opened: Callable[[str], None]) -> None:
    """The form, what it will run, and why it cannot where it cannot."""
    left, right = st.columns([1, 1.35], gap="medium", wrap=False)
    spec = None
    with left.container(border=True, key="form"):
        try:
            spec = _form(state)
        except (ValueError, TypeError, OSError) as error:
            st.error(md(sentence(error)))
    with right:
        tool = st.segmented_control(
            "tool",
            list(TOOLS),
            key=state.seed("tool", "torch.profiler", url.one_of(list(TOOLS))),
            required=True,
        )
        state.keep("tool", tool, "torch.profiler")
        kind = TOOLS[tool]
        st.caption(_WHAT[kind])
        extra = _extra(state, kind)
        if spec is None:
            return
        reason = _why_not(kind, spec | extra)
        st.button(
            "Profile",
            type="primary",
            key="profiler/go",
            disabled=reason is not None,
            on_click=callbacks.careful(_submit),
            args=(kind, spec | extra, opened),
        )
        if reason:
            st.warning(md(reason))
        st.code(_command(kind, spec | extra), language="bash", wrap_lines=True)


def _form(state: url.State) -> dict:
    """What is profiled: {op, impl, case, dtype, device}; ValueError for a choice that cannot be."""
    subjects = [*ops.names(), *(models.op(n) for n in models.names())]
    titles = {n: ops.load(n).TITLE for n in ops.names()} | {
        models.op(n): f"model: {models.title(n)}" for n in models.names()
    }
    key = state.seed("op", "attention", url.one_of(subjects))
    state.scope = state.query.get("op", "attention")
    op = st.selectbox("operator or model", subjects, key=key, format_func=titles.get)
    state.keep("op", op, "attention")
    model = models.named(op) if op.startswith("model:") else None
    where = device.current()
    listed = (
        models.ways(model, where)
        if model
        else ops.implementations(op, where, device.facts(where).get("arch"))
    )
    able = [i.name for i in listed if i.reason is None]
    if not able:
        raise ValueError(
            f"nothing that computes {titles[op]} runs on {where}: {listed[0].reason if listed else 'no implementation'}"
        )
    a, b = st.columns([3, 2], gap="small", wrap=False)
    usual = next((i.name for i in reversed(listed) if i.reason is None and i.kind == "ours"), able[0])
    with a:
        impl_key = state.seed("impl", usual, url.one_of(able), op)
        if st.session_state[impl_key] not in able:
            st.session_state[impl_key] = usual
        impl = st.selectbox("implementation", able, key=impl_key, format_func=short)
        state.keep("impl", impl, usual)
    dtypes = (
        [d for d in DTYPES if d in ("float32", "float16", "bfloat16")] if model else list(ops.load(op).DTYPES)
    )
    start = "float16" if device.is_gpu() and "float16" in dtypes else dtypes[0] if not model else "float32"
    with b:
        dtype = st.selectbox("dtype", dtypes, key=state.seed("dtype", start, url.one_of(dtypes), op))
        state.keep("dtype", dtype, start)
    wanted = models.parameters(model) if model else ops.load(op).PARAMETERS
    place: list = []
    values = {k: v[0] for k, v in parameters.draw(state, op, wanted, None, place.append).items()}
    case = models.validate(model, values) if model else ops.load(op).validate(values)
    mask = next((p.name for p in wanted if p.kind == "mask"), None)
    if place and mask and case.get("seq") and case.get(mask):
        with place[0]:
            mask_picker.thumbnail(str(case[mask]), int(case["seq"]), int(case.get("seq_k") or case["seq"]))
    unable = [i for i in listed if i.reason]
    if unable:
        with st.popover(f"{len(unable)} not on this device", type="tertiary"):
            for i in unable:
                st.markdown(f"**{md(i.name)}**: {md(i.reason)}")
    return {"op": op, "impl": impl, "case": case, "dtype": dtype, "device": where}


def _extra(state: url.State, kind: str) -> dict:
    if kind == "trace":
        memory = st.toggle(
            "memory: allocations in the trace, peak and snapshot",
            key=state.seed("memory", False, lambda t: t == "yes"),
        )
        state.keep("memory", "yes" if memory else "")
        return {"memory": memory}
    if kind == "ncu":
        chosen = st.segmented_control(
            "metrics",
            _METRICS,
            key=state.seed("metrics", _METRICS[0], url.one_of(_METRICS)),
            required=True,
            help="full takes some 40 passes a kernel; light has no stall reasons",
        )
        state.keep("metrics", chosen, _METRICS[0])
        if chosen != _OWN:
            return {"metrics": chosen}
        names = st.text_input(
            "metric names, separated by commas",
            key=state.seed("names", "gpu__time_duration.sum,dram__bytes_read.sum"),
            help="As ncu --query-metrics lists them",
        )
        state.keep("names", names)
        return {"metrics": names.replace(" ", "")}
    return {}


def _why_not(kind: str, spec: dict) -> str | None:
    """Why pressing the button would be refused; None where it would not."""
    try:
        submit.validate(kind, spec)
    except (ValueError, TypeError, OSError) as error:
        return sentence(error)
    return None


def _submit(kind: str, spec: dict, opened: Callable[[str], None]) -> None:
    opened(submit.submit(kind, spec))


def _command(kind: str, spec: dict) -> str:
    """The same from a terminal."""
    case = ",".join(f"{k}={v}" for k, v in spec["case"].items() if v is not None)
    words = [
        "python -m fusescope profile",
        spec["op"].removeprefix("model:"),
        "--impl",
        spec["impl"],
        "--case",
        f"'{case}'",
    ]
    words += ["--dtype", spec["dtype"], "--device", spec["device"]]
    words += {"ncu": ["--tool", "ncu", "--metrics", spec.get("metrics", "")], "nsys": ["--tool", "nsys"]}.get(
        kind, []
    )
    return " ".join(words + (["--memory"] if spec.get("memory") else []))

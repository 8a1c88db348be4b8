"""Profiling an operator or a model: with torch.profiler, or with Nsight where installed."""

from __future__ import annotations

import streamlit as st

from fusescope import models, ops
from fusescope.charts.colours import short
from fusescope.core.records import DTYPES
from fusescope.jobs import submit
from pages._ui.app import device, url
from pages._ui.forms import fields, implementations, linked, mask_picker, parameters
from pages._ui.widgets.text import md, sentence

TOOLS = {"torch.profiler": "trace", "Nsight Compute": "ncu", "Nsight Systems": "nsys"}
_WHAT = {
    "trace": "Five calls after a warm-up: operators, kernels, launches, gaps, modules, clocks and power.",
    "ncu": "Each kernel of one call replayed with hardware counters: speed of light, measured occupancy, "
    "warp stall reasons, memory traffic. Its times are not latencies.",
    "nsys": "One call on a timeline, without the overhead of torch.profiler.",
}
_OWN = "custom"
_METRICS = ("standard", "light", "detailed", "full", _OWN)


def draw(state: url.State) -> None:
    """The form, the command it will run, or why it cannot run."""
    left, right = st.columns([1, 1.35], gap="medium", wrap=False)
    spec = None
    with left.container(border=True, key="form"):
        try:
            spec = _form(state)
        except (ValueError, TypeError, OSError) as error:
            st.error(md(sentence(error)))
    with right:
        tool = fields.segments(state, "tool", "tool", TOOLS)
        kind = TOOLS[tool]
        st.caption(_WHAT[kind])
        extra = _extra(state, kind)
        if spec is None:
            return
        reason = _why_not(kind, spec | extra)
        go = st.button("Profile", type="primary", key="profiler/go", disabled=reason is not None)
        if go and not reason:
            st.switch_page("pages/profiler.py", query_params={"run": submit.submit(kind, spec | extra)})
        if reason:
            st.warning(md(reason))
        st.code(_command(kind, spec | extra), language=None, wrap_lines=True)


def _form(state: url.State) -> dict:
    """What is profiled: {op, impl, case, dtype, device}; ValueError for a choice that cannot be."""
    titles = ops.titles() | {models.op(n): f"model: {models.title(n)}" for n in models.names()}
    state.scopes.add(state.query.get("op", "attention"))
    op = fields.pick(state, "op", "operator or model", list(titles), "attention", format_func=titles.get)
    model = models.named(op) if op.startswith("model:") else None
    where = device.current()
    listed = (
        models.modes(model, where)
        if model
        else ops.implementations(op, where, device.facts(where).get("arch"))
    )
    able = [i.name for i in listed if i.reason is None]
    if not able:
        raise ValueError(
            f"no implementation of {titles[op]} runs on {where}: "
            f"{listed[0].reason if listed else 'none exists'}"
        )
    a, b = st.columns([3, 2], gap="small", wrap=False)
    usual = next((i.name for i in reversed(listed) if i.reason is None and i.kind == "ours"), able[0])
    with a:
        impl = fields.pick(state, "impl", "implementation", able, usual, op, format_func=short)
    dtypes = DTYPES if model else ops.load(op).DTYPES
    half = device.is_gpu() and "float16" in dtypes
    start = "float16" if half else "float32" if model else dtypes[0]
    with b:
        dtype = fields.pick(state, "dtype", "dtype", dtypes, start, op)
    wanted = models.parameters(model) if model else ops.load(op).PARAMETERS
    place: list = []
    values = {k: v[0] for k, v in parameters.draw(state, op, wanted, None, place.append).items()}
    case = models.validate(model, values) if model else ops.load(op).validate(values)
    mask = next((p.name for p in wanted if p.kind == "mask"), None)
    if place and mask and case.get("seq") and case.get(mask):
        with place[0]:
            mask_picker.thumbnail(str(case[mask]), int(case["seq"]), int(case.get("seq_k") or case["seq"]))
    implementations.unavailable(listed)
    fields.refuse(state)
    linked.refuse(state)
    return {"op": op, "impl": impl, "case": case, "dtype": dtype, "device": where}


def _extra(state: url.State, kind: str) -> dict:
    if kind == "trace":
        memory = fields.yes(state, "memory", "memory: allocations, peak and snapshot")
        return {"memory": memory}
    if kind == "ncu":
        passes = "full takes some 40 passes per kernel; light has no stall reasons"
        chosen = fields.segments(state, "metrics", "metrics", _METRICS, help=passes)
        if chosen != _OWN:
            return {"metrics": chosen}
        names = fields.text(
            state,
            "names",
            "metric names, comma-separated",
            default="gpu__time_duration.sum,dram__bytes_read.sum",
            help="As ncu --query-metrics lists them",
        )
        return {"metrics": names.replace(" ", "")}
    return {}


def _why_not(kind: str, spec: dict) -> str | None:
    """Why pressing the button would be refused; None where it would not."""
    try:
        submit.validate(kind, spec)
    except (ValueError, TypeError, OSError) as error:
        return sentence(error)
    return None


def _command(kind: str, spec: dict) -> str:
    """The same from a terminal."""
    case = ",".join(f"{k}={v}" for k, v in spec["case"].items() if v is not None)
    words = [
        "fusescope profile",
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

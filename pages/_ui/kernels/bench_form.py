"""The controls of the Kernels page: what is compared, on which cases, and what pressing Run will cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from fusescope import ops
from fusescope.analysis import estimate
from fusescope.charts import numbers
from fusescope.core import environment
from fusescope.core.records import BenchSpec
from pages._ui.app import device, url
from pages._ui.kernels import implementations, mask_picker, parameters
from pages._ui.widgets.text import md, sentence

_CACHES = {"both": "both", "warm": "warm", "cold": "cold"}


def draw(state: url.State) -> tuple[str, BenchSpec | None, bool]:
    """(operator, what is asked for or None where the choice is not valid, whether Run was pressed)."""
    problems: list[str] = []
    names = ops.names()
    default = "attention" if "attention" in names else names[0]
    state.scope = state.query.get("op", default)
    top = st.container()  # filled last: what Run costs is known when everything is chosen
    left, right = st.columns([3, 2], gap="small", wrap=False)
    with left:
        key = state.seed("op", default, url.one_of(names))
        summary = ops.load(st.session_state[key]).SUMMARY
        op = st.selectbox("operator", names, key=key, format_func=lambda n: ops.load(n).TITLE, help=summary)
        state.keep("op", op, default)
    module = ops.load(op)
    with right:
        dtype = _dtype(state, op, module)
    chosen, baseline = [], ""
    with collect(problems):
        chosen = implementations.choose(state, op)
    left, right = st.columns(2, gap="small", wrap=False)
    with left, collect(problems):
        baseline = implementations.baseline(state, op, chosen)
    with right:
        key = state.seed("cache", "both", url.one_of(list(_CACHES)))
        help_text = "Cold: the last-level cache is flushed between samples. Warm: it is not. Both: the chart shows warm, the table both."
        cache = st.selectbox("cache", list(_CACHES), key=key, format_func=_CACHES.get, help=help_text)
        state.keep("cache", cache, "both")
    spec = None
    sweep = parameters.sweep(state, op, module.PARAMETERS)
    with collect(problems):
        place: list = []
        values = parameters.draw(state, op, module.PARAMETERS, sweep, place.append)
        cases = _cases(module, values)
        if place:
            with place[0]:
                _picture(module, cases)
        if not problems:
            spec = BenchSpec(op, tuple(chosen), tuple(cases), baseline, dtype, device.current(), cache)
    spec = None if problems else spec
    with top:
        pressed = st.button(
            "Run",
            type="primary",
            disabled=spec is None,
            width="stretch",
            key="kernels/run",
            shortcut="Ctrl+Enter",
        )
        for problem in problems:
            st.error(md(problem))
        if spec:
            st.caption(_cost(spec))
        neighbours()
    return op, spec, pressed


def _dtype(state: url.State, op: str, module) -> str:
    """Half precision where there is a GPU to run it, single on the CPU."""
    usual = "float16" if device.is_gpu() and "float16" in module.DTYPES else module.DTYPES[0]
    key = state.seed("dtype", usual, url.one_of(module.DTYPES), op)
    chosen = st.selectbox("dtype", module.DTYPES, key=key)
    state.keep("dtype", chosen, usual)
    return chosen


def _cases(module, values: dict) -> list[dict]:
    """Complete cases: one for each value of the swept parameter."""
    several = next((k for k, v in values.items() if len(v) > 1), None)
    single = {k: v[0] for k, v in values.items()}
    return [
        module.validate(single | ({several: v} if several else {}))
        for v in (values[several] if several else [None])
    ]


def _picture(module, cases: list[dict]) -> None:
    name = next((p.name for p in module.PARAMETERS if p.kind == "mask"), None)
    if name and cases:
        last = cases[-1]
        mask_picker.thumbnail(str(last[name]), int(last["seq"]), int(last.get("seq_k") or last["seq"]))


def _cost(spec: BenchSpec) -> str:
    count = f"{len(spec.cases)} case{'s' if len(spec.cases) != 1 else ''}"
    what = f"{len(spec.impls)} implementation{'s' if len(spec.impls) != 1 else ''}"
    where = device.facts(spec.device).get("device_name") or spec.device
    compiling = ops.compile_seconds(spec.op, (spec.baseline, *spec.impls), spec.device)
    took = f"about {numbers.seconds(estimate.seconds(spec, compiling))} on {where}"
    return f"{count} × {what}, {took}" + (", compilation of peers included" if compiling else "")


def neighbours() -> None:
    """Somebody else's process on the chosen GPU, by name and PID, before Run is pressed."""
    if not device.is_gpu():
        return
    uuid = device.facts(device.current()).get("device_uuid")
    for gpu in _gpus():
        for process in gpu["processes"] if gpu["uuid"] == uuid else ():
            st.warning(
                f"{process['name']} (PID {process['pid']}) is on this GPU; its work would show in the times."
            )


@st.cache_data(ttl=5, show_spinner=False)
def _gpus() -> list[dict]:
    return environment.gpus()


@contextmanager
def collect(problems: list[str]) -> Iterator[None]:
    """Turn a refused choice into a sentence and go on drawing: a widget that is not drawn would lose its
    value."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        problems.append(sentence(error))

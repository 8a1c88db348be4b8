"""The controls of the Kernels page: what is compared, on which cases, and what pressing Run will cost."""

from __future__ import annotations

import streamlit as st

from fusescope import ops
from fusescope.core.records import BenchSpec
from pages._ui.answer import workers
from pages._ui.app import device, url
from pages._ui.forms import certainty, fields, implementations, linked, mask_picker, parameters, run_panel

_CACHES = ("both", "warm", "cold")


def draw(state: url.State) -> tuple[str, BenchSpec | None, bool]:
    """(operator, the specification or None where the choice is not valid, whether Run was pressed)."""
    problems: list[str] = []
    titles = ops.titles()
    names = list(titles)
    default = "attention" if "attention" in names else names[0]
    state.scopes.add(state.query.get("op", default))
    top = st.container()  # filled last: what Run costs is known when everything is chosen
    key = fields.seeded(state, "op", names, default)
    summary = ops.load(st.session_state[key]).SUMMARY
    op = st.selectbox("operator", names, key=key, format_func=titles.get, help=summary)
    state.keep("op", op, default)
    module = ops.load(op)
    chosen, baseline = [], ""
    with run_panel.collect(problems):
        arch = device.facts(device.current()).get("arch")
        listed = ops.implementations(op, device.current(), arch)
        chosen = implementations.choose(state, op, listed, own=True)
    with run_panel.collect(problems):
        baseline = implementations.baseline(state, op, chosen)
    left, right = st.columns(2, gap="small", wrap=False)
    with left:
        half = device.is_gpu() and "float16" in module.DTYPES
        usual = "float16" if half else module.DTYPES[0]
        dtype = fields.pick(state, "dtype", "dtype", module.DTYPES, usual, op)
    with right:
        help_text = (
            "Cold: the last-level cache is flushed between samples. Warm: it is not. "
            "Both: the chart shows warm, the table both."
        )
        cache = fields.pick(state, "cache", "cache", _CACHES, help=help_text)
    certain = certainty.draw(state)
    with run_panel.collect(problems):
        workers.choose(state)
    spec = None
    sweep = parameters.sweep(state, op, module.PARAMETERS)
    with run_panel.collect(problems):
        place: list = []
        values = parameters.draw(state, op, module.PARAMETERS, sweep, place.append)
        cases = [module.validate(case) for case in run_panel.swept(values)]
        if place:
            with place[0]:
                _picture(module, cases[-1])
        if not problems:
            spec = BenchSpec(
                op, tuple(chosen), tuple(cases), baseline, dtype, device.current(), cache, **certain
            )
    for refuse in (fields.refuse, linked.refuse):
        with run_panel.collect(problems):
            refuse(state)
    spec = None if problems else spec
    with top:
        pressed = run_panel.draw(
            "kernels/run", problems, run_panel.cost("bench", spec, "implementation") if spec else ""
        )
    return op, spec, pressed


def _picture(module, case: dict) -> None:
    name = next(p.name for p in module.PARAMETERS if p.kind == "mask")
    mask_picker.thumbnail(str(case[name]), int(case["seq"]), int(case.get("seq_k") or case["seq"]))

"""The cost of a run's work by its cost model (FLOP, minimum traffic, predicted memory; None for an import),
and the ceilings of its device."""

from __future__ import annotations

import json
from dataclasses import dataclass

import streamlit as st

from fusescope import models, ops
from fusescope.analysis import hardware, memory_plan
from fusescope.analysis.roofline import Ceiling
from fusescope.core import paths
from fusescope.core.records import Run
from fusescope.models.describe.modes import quantised_of
from fusescope.ops.base import Cost
from fusescope.store import library


@dataclass(frozen=True)
class Work:
    """One call: its title, its cost, and the memory it should take by part, in bytes."""

    title: str
    dtype: str
    cost: Cost
    memory: dict[str, int]


def work(run: Run) -> Work | None:
    """The work that a run's spec names."""
    spec = run.spec
    if not spec.get("op") or not isinstance(spec.get("case"), dict):
        return None
    return _work(
        str(spec["op"]), str(spec.get("impl")), json.dumps(dict(spec["case"])), str(spec.get("dtype"))
    )


@st.cache_data(max_entries=64, show_spinner=False)
def _work(op: str, impl: str, case: str, dtype: str) -> Work | None:
    values = json.loads(case)
    try:
        if op.startswith("model:"):
            return _model(models.named(op), impl, values, dtype)
        module = ops.load(op)
        cost = module.cost(module.validate(values), dtype)
    except (
        ValueError,
        TypeError,
        KeyError,
        OSError,
    ):  # an operator, case or file that this machine does not have
        return None
    return Work(module.TITLE, dtype, cost, {"operands": int(cost.bytes)})


def _model(name: str, impl: str, case: dict, dtype: str) -> Work:
    case = models.validate(name, case)
    config, root = models.config(name, case), models.anatomy(name, case)[0]
    sizes = {
        k: getattr(config, k, None) for k in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn")
    }
    sizes["kv_heads"] = sizes["kv_heads"] or sizes["heads"]  # 0: as many as query heads
    seq, phase = int(case["seq"]), case.get("phase")
    tokens = 1 if phase == "decode" else seq
    memory = memory_plan.predicted(
        sizes, root.count, int(case["batch"]), tokens, dtype, impl == "eager", seq if phase else 0
    )
    return Work(models.title(name), dtype, models.cost(name, case, dtype, quantised_of(impl)), memory)


def ceilings(device_name: str, summary: dict | None, work: Work) -> tuple[dict[str, Ceiling], str]:
    """(ceilings that apply to the work: those measured by the newest benchmark on such a device, then the
    data sheet's; the sheet's source)."""
    gpu = next((g["name"] for g in (summary or {}).get("gpus", ()) if g.get("name")), None) or device_name
    roofs = {}
    home = paths.profiles()
    measured = _measured(gpu, str(home.stat().st_mtime_ns if home.is_dir() else 0))
    rate = (measured.get(f"{work.cost.unit}_tflops") or {}).get(work.dtype)
    if measured.get("copy_gbps") and rate:
        roofs["measured"] = Ceiling(measured["copy_gbps"], rate)
    sheet = hardware.peaks(gpu)
    peak = sheet.tflops(work.dtype, work.cost.unit) if sheet else None
    if not sheet or not peak:
        return roofs, ""
    return roofs | {f"data sheet of {sheet.name}": Ceiling(sheet.bandwidth_gbps, peak)}, sheet.source


@st.cache_data(ttl=60, show_spinner=False)
def _measured(device_name: str, stamp: str) -> dict:
    """The newest measured ceilings of a device by that name."""
    for run in library.runs(kind="bench", text=device_name, limit=40)[0]:
        if run.device_name == device_name and run.environment.get("ceilings"):
            return dict(run.environment["ceilings"])
    return {}

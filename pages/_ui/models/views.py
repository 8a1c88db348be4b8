"""The views of the Models page: of the run on show, and of the model itself (parameters, accuracy), which
need no run."""

from __future__ import annotations

import json

import pandas as pd
import streamlit as st

from fusescope.charts import captions, numbers, tables, verdicts
from fusescope.charts.bench.speedup import ratio_text
from fusescope.charts.colours import short
from fusescope.charts.models import generation, layer_parts, memory
from fusescope.core import command
from fusescope.core.records import Record
from pages._ui.answer import views
from pages._ui.app import cached_chart, url
from pages._ui.forms import fields
from pages._ui.limits import least
from pages._ui.models import accuracy, anatomy
from pages._ui.models.form import Choice
from pages._ui.widgets import elements
from pages._ui.widgets.text import md

_BY_TOKEN = ("decode", "generate")
"""Phases whose rate is that of tokens."""
_OF_MEMORY, _OF_PEAK = "% of memory's limit", "% of measured peak"
_NO_RUN = "No results yet; press Run."


def draw(state: url.State, choice: Choice, look: views.Look | None) -> None:
    """The view that is chosen, under its control."""
    chosen = fields.view(state, "view", NAMES, NAMES[0] if look else "Parameters")
    state.keep("view", chosen)
    _VIEWS[chosen](state, choice, look)


def warnings(look: views.Look) -> None:
    """What must be known to read the bars: a peer that fell back to a slow path."""
    for r in look.rows:
        if "math" in (r.backend or "").split(" and ") and r.device != "cpu":
            st.warning(
                f"**{md(r.impl)}** captured SDPA's math path: the fused backends reject the mask that "
                "Hugging Face builds, and "
                "the graph keeps the slow path. Compare with sdpa-graph; do not quote a speed-up over it."
            )
            return


def _table(state: url.State, choice: Choice, look: views.Look | None) -> None:
    if look is None:
        elements.note(_NO_RUN)
        return
    about = look.rows, look.baseline, look.run.device_name
    data = cached_chart.once(("model-table", *look.key), lambda: readable(*about))
    elements.table(
        data,
        look.name("records"),
        lambda: csv(look.rows, look.baseline),
        why=_why(*about),
        about={"mode": views.ideas(look.rows[0].op, look.rows[0].device)},
    )
    _generation(look)
    elements.note(
        "Percentiles: single calls, warm. Peak memory: the allocator's peak during a call, weights included. "
        "First: the first call. % of measured peak: of the matrix rate measured on this device. % of "
        "memory's limit: the time of the minimum traffic (weights, cache) at the measured rate, over the "
        "median."
    )


def _generation(look: views.Look) -> None:
    """Prefill and decode: tokens per second of the fastest correct mode."""
    best: dict[str, Record] = {}
    for r in look.records:
        rate = ((r.extra or {}).get("throughput") or {}).get("tokens_per_s")
        phase = r.case.get("phase")
        if (
            phase
            and rate
            and rate > (best[phase].extra["throughput"]["tokens_per_s"] if phase in best else 0)
        ):
            best[phase] = r
    for column, (phase, r) in zip(st.columns(4) if best else (), best.items(), strict=False):
        column.metric(
            f"{phase}, tokens/s",
            numbers.three(r.extra["throughput"]["tokens_per_s"]),
            help=captions.case(r),
        )
        size = f"batch {r.case['batch']}, sequence {r.case['seq']:,}"
        near = least.of_memory(r, look.run.device_name)
        limit = f", {numbers.percent(near)} of memory's limit" if near else ""
        column.caption(f"{size}; fastest: {short(r.impl)}{limit}")


def readable(records: list[Record], baseline: str, device_name: str = "") -> pd.DataFrame:
    """Records of a model as a readable table, one unit per column. A share of the matrix rate says nothing
    where memory is the limit of all of them: it is left out then, else that of memory's limit where none
    has it."""
    unit, factor = numbers.time_unit(t.median for r in records if (t := r.time))
    first_unit, to_first = numbers.time_unit(r.time_ms.first for r in records if r.time_ms)
    keys, lines, modes = tables.varying(records), [], memory.several(records)
    for r in records:
        x, s = r.extra or {}, r.speedup if r.impl != baseline else None
        throughput, held = x.get("throughput") or {}, memory.figures(r, modes)[0]
        p = (x.get("percentiles_ms") or {}).get(r.main) or {}
        lines.append(
            {"check": tables.check(r), "mode": short(r.impl)}
            | {k: r.case.get(k) for k in keys}
            | {
                "verdict": ratio_text(r, baseline),
                "95 % interval (×)": (s and verdicts.interval(s.words, s.low, s.high)) or None,
                f"p50 ({unit})": _scaled(p.get("p50"), factor),
                f"p90 ({unit})": _scaled(p.get("p90"), factor),
                f"p99 ({unit})": _scaled(p.get("p99"), factor),
                "sequences/s": throughput.get("sequences_per_s"),
                "tokens/s": throughput.get("tokens_per_s"),
                "images/s": throughput.get("images_per_s"),
                _OF_MEMORY: _scaled(least.of_memory(r, device_name), 100),
                f"first ({first_unit})": _scaled(r.time_ms.first if r.time_ms else None, to_first),
                "TFLOP/s": r.tflops.effective if r.tflops else None,
                _OF_PEAK: _scaled(x.get("share_of_peak"), 100),
                "peak memory (MiB)": _scaled(held["peak_bytes"], 2**-20),
                "process (NVML, MiB)": _scaled(held["nvml_process_bytes"], 2**-20),
                "max abs error": r.accuracy.max_abs if r.accuracy else None,
                "ran as": tables.ran_as(r),
                "note": tables.note(r, baseline),
            }
        )
    data = pd.DataFrame(lines)
    empty = [c for c in ("sequences/s", "tokens/s", "images/s") if data[c].isna().all()]
    if "tokens/s" not in empty and all(r.case.get("phase") in _BY_TOKEN for r in records):
        empty.append("sequences/s")
    timed = data.loc[[r.status == "ok" for r in records], _OF_MEMORY].notna()
    if not timed.any():
        empty.append(_OF_MEMORY)
    elif timed.all():
        empty.append(_OF_PEAK)
    return data.drop(columns=empty)


def csv(records: list[Record], baseline: str) -> pd.DataFrame:
    """Everything a record holds, the fields of models included."""
    flat = pd.json_normalize([dict(r.extra or {}) for r in records], sep="_")
    return pd.concat([tables.tidy(records, baseline), flat], axis=1)


def _why(records: list[Record], baseline: str, device_name: str):
    """Why a value is unknown, by (row, column)."""
    found, modes = {}, memory.several(records)
    for i, r in enumerate(records):
        if r.impl == baseline:
            found[i, "95 % interval (×)"] = "the baseline itself"
        elif r.speedup:
            found[i, "95 % interval (×)"] = verdicts.no_interval(r)
        if r.status != "ok":
            rates = ("sequences/s", "tokens/s", "images/s", _OF_MEMORY, "TFLOP/s")
            found |= {(i, c): f"{r.status}: {r.reason}" for c in ("verdict", "95 % interval (×)", *rates)}
        elif r.device == "cpu":
            found[i, "peak memory (MiB)"] = "measured on CUDA devices only"
        else:
            reasons = memory.figures(r, modes)[1]
            found[i, "peak memory (MiB)"] = reasons.get("peak_bytes", "")
            found[i, "process (NVML, MiB)"] = reasons.get("nvml_process_bytes", "")
        if r.status == "ok" and least.of_memory(r, device_name) is None:
            found[i, _OF_MEMORY] = "memory is not its limit"
    return found


def _parts(state: url.State, choice: Choice, look: views.Look | None) -> None:
    if look is None:
        elements.note(_NO_RUN)
        return
    share = fields.yes(state, "shares", "as shares")
    rows = look.case
    fig = cached_chart.once(
        ("parts", share, *look.key), lambda: layer_parts.bars(rows, share, look.subtitle, look.theme)
    )
    table = pd.DataFrame(
        [{"mode": r.impl, "part": p, **v} for r in rows for p, v in layer_parts.of(r).items()]
    )
    elements.chart(fig, look.name("parts"), table)
    elements.note(
        "From one profiled pass. A graph is divided like the same calls without it, a decoding step whose "
        "layers are one launch like its operators one by one, torch.compile's kernels by the order of GEMMs "
        "and attention, so a kernel fused across two parts counts as one of them."
    )
    for r in rows:
        if r.status == "ok" and not layer_parts.of(r):
            elements.note(f"{short(r.impl)} has no layer parts; see the run's log.")
    if not look.one_case:
        elements.note("Shown for the last case; choose one above.")


def _generates(state: url.State, choice: Choice, look: views.Look | None) -> None:
    if look is None:
        elements.note(_NO_RUN)
        return
    rows = [r for r in look.records if (r.extra or {}).get("generation")]
    if not rows:
        elements.note("Nothing was generated in this run: choose a decoder, and phase decode or generate.")
        return
    fig = cached_chart.once(
        ("generation", look.theme, *look.key), lambda: generation.curve(rows, look.subtitle, look.theme)
    )
    data = generation.readable(rows)
    elements.chart(fig, look.name("throughput-latency"), data)
    elements.table(data, look.name("generation"))
    elements.note(
        "First token: of prefill without the head, of generate with it. Share of memory's rate: the least "
        "bytes of a step (weights and cache once) over its median time, of the measured rate of reads or "
        "copies, whichever is higher. Activations are measured on a GPU only. Quantised weights and an fp8 "
        "cache count with their 8 bits, although beyond 16 tokens at a time weights are read with more. They "
        "are checked against a model with the same rounding; what quantising changes has its own columns: "
        "error and KL divergence of the outputs, from those of the model in float64, and the likeliest "
        "token, one for each sequence of the batch."
    )


def _memory(state: url.State, choice: Choice, look: views.Look | None) -> None:
    if look is None:
        elements.note(_NO_RUN)
        return
    modes = memory.several(look.records)
    lines, why = [], {}
    for n, r in enumerate(look.rows):
        found, reasons = memory.figures(r, modes)
        lines.append(
            {"mode": short(r.impl)}
            | {f"{word} (MiB)": _scaled(found[k], 2**-20) for k, word in memory.WORDS.items()}
        )
        why |= {(n, f"{memory.WORDS[k]} (MiB)"): text for k, text in reasons.items()}
    elements.table(
        pd.DataFrame(lines),
        look.name("memory"),
        lambda: csv(look.rows, look.baseline),
        why=lambda row, column: why.get((row, column), ""),
    )
    elements.note(
        "Persistent: tensors held between calls beyond the weights (packed weights, tables). Graph pool: "
        "what the mode's CUDA graphs reserve. Per call: the most that a call allocates on top; a replay "
        "allocates nothing. The peak is the sum."
    )


def _run_view(name: str):
    def view(state: url.State, choice: Choice, look: views.Look | None) -> None:
        if look is None:
            elements.note(_NO_RUN)
        else:
            views.draw(name, look)

    return view


def _reproduce(state: url.State, choice: Choice, look: views.Look | None) -> None:
    spec = look.run.spec if look else choice.spec
    if spec is None:
        elements.note("The settings are incomplete; see the form.")
        return
    st.code(command.model(spec), language=None, wrap_lines=True)
    with st.expander("Full configuration" + (" and environment" if look else "")):
        st.json(
            {"spec": json.loads(json.dumps(dict(spec)))}
            | ({"environment": dict(look.run.environment)} if look else {}),
            expanded=1,
        )


def _accuracy(state: url.State, choice: Choice, look: views.Look | None) -> None:
    accuracy.draw(state, choice)


def _anatomy(state: url.State, choice: Choice, look: views.Look | None) -> None:
    anatomy.draw(choice)


def _scaled(value, factor: float):
    return None if value is None else value * factor


_VIEWS = {
    "Table": _table,
    "Times": _run_view("Times"),
    "Sweep": _run_view("Sweep"),
    "Layer parts": _parts,
    "Generation": _generates,
    "Memory": _memory,
    "Accuracy": _accuracy,
    "Parameters": _anatomy,
    "Trace": _run_view("Trace"),
    "Reproduce": _reproduce,
}
NAMES = list(_VIEWS)

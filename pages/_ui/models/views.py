"""The views of the Models page: of the run on show, and of the model itself (parameters, accuracy), which
need no run."""

from __future__ import annotations

import json

import pandas as pd
import streamlit as st

from fusescope.charts import numbers, tables, template
from fusescope.charts.bench.speedup import verdict
from fusescope.charts.colours import short
from fusescope.charts.models import layer_parts
from fusescope.core import command
from fusescope.core.records import Record
from pages._ui.answer import views
from pages._ui.app import cached_chart, url
from pages._ui.models import accuracy, anatomy
from pages._ui.models.form import Choice
from pages._ui.widgets import elements
from pages._ui.widgets.text import md

_NO_RUN = "Nothing to show until a run has a record; press Run."


def draw(state: url.State, choice: Choice, look: views.Look | None) -> None:
    """The view that is chosen, under its control."""
    key = state.seed("view", NAMES[0] if look else "Parameters", url.one_of(NAMES))
    chosen = st.segmented_control("View", NAMES, key=key, label_visibility="collapsed", required=True)
    state.keep("view", chosen)
    _VIEWS[chosen](state, choice, look)


def remarks(look: views.Look) -> None:
    """What must be known to read the bars: a peer that did not run as one would think."""
    for r in look.rows:
        if "math" in (r.backend or "").split(" and ") and r.device != "cpu":
            st.warning(
                f"**{md(r.impl)}** ran SDPA's math path under capture: with a mask that Hugging Face builds, the fused backends refuse and "
                "a graph freezes the slow one. A fair peer is sdpa-graph; a speed-up over this one is none."
            )
            return


def _table(state: url.State, choice: Choice, look: views.Look | None) -> None:
    if look is None:
        elements.note(_NO_RUN)
        return
    data = cached_chart.once(("model-table", *look.key), lambda: readable(look.rows, look.baseline))
    elements.table(data, look.name("records"), lambda: csv(look.rows, look.baseline), why=_why(look.rows))
    _generation(look)
    elements.note(
        "Percentiles are of single calls, warm. Peak: the allocator's during a call, weights included; "
        "of peak: of the matrix rate measured on this device; first: the cold call."
    )


def _generation(look: views.Look) -> None:
    """Prefill and decode apart: tokens a second of the fastest way that was right."""
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
    columns = st.columns(4)
    for column, (phase, r) in zip(columns, best.items(), strict=False):
        column.metric(
            f"{phase}, tokens/s",
            numbers.three(r.extra["throughput"]["tokens_per_s"]),
            help=template.case_words(r),
        )
        column.caption(f"fastest: {short(r.impl)}")


def readable(records: list[Record], baseline: str) -> pd.DataFrame:
    """Records of a model for eyes, one unit a column."""
    unit, factor = numbers.time_unit(t.median for r in records if (t := _main(r)))
    keys, lines = tables.varying(records), []
    for r in records:
        t, x, s = _main(r), r.extra or {}, r.speedup if r.impl != baseline else None
        many, memory = x.get("throughput") or {}, x.get("memory") or {}
        p = (x.get("percentiles_ms") or {}).get(r.main_mode) or {}
        lines.append(
            {"way": short(r.impl)}
            | {k: r.case.get(k) for k in keys}
            | {
                "verdict": verdict(r, baseline),
                "ran as": r.backend,
                "speed-up (×)": 1.0 if r.impl == baseline and t else s and s.median,
                f"p50 ({unit})": _times(p.get("p50"), factor),
                f"p90 ({unit})": _times(p.get("p90"), factor),
                f"p99 ({unit})": _times(p.get("p99"), factor),
                "first (ms)": r.time_ms.first if r.time_ms else None,
                "sequences/s": many.get("sequences_per_s"),
                "tokens/s": many.get("tokens_per_s"),
                "images/s": many.get("images_per_s"),
                "TFLOP/s": r.tflops.effective if r.tflops else None,
                "of peak (%)": _times(x.get("share_of_peak"), 100),
                "peak (MiB)": _times(memory.get("peak_bytes"), 2**-20),
                "NVML (MiB)": _times(memory.get("nvml_process_bytes"), 2**-20),
                "max abs error": r.accuracy.max_abs if r.accuracy else None,
                "remark": r.reason,
            }
        )
    data = pd.DataFrame(lines)
    empty = [c for c in ("sequences/s", "tokens/s", "images/s") if data[c].isna().all()]
    return data.drop(columns=empty)


def csv(records: list[Record], baseline: str) -> pd.DataFrame:
    """Everything a record holds, what only models say included."""
    flat = pd.json_normalize([dict(r.extra or {}) for r in records], sep="_")
    return pd.concat([tables.tidy(records, baseline), flat], axis=1)


def _why(records: list[Record]):
    """Why a value is unknown, by (row, column)."""
    found = {}
    for i, r in enumerate(records):
        if r.status != "ok":
            found |= {
                (i, c): f"{r.status}: {r.reason}"
                for c in ("speed-up (×)", "sequences/s", "tokens/s", "images/s", "TFLOP/s")
            }
        elif r.device == "cpu":
            found |= {(i, c): "measured on CUDA devices" for c in ("peak (MiB)",)}
    return found


def _parts(state: url.State, choice: Choice, look: views.Look | None) -> None:
    if look is None:
        elements.note(_NO_RUN)
        return
    share = st.toggle("as shares", key=state.seed("shares", False, lambda t: t == "yes"))
    state.keep("shares", "yes" if share else "")
    rows = look.case
    fig = cached_chart.once(
        ("parts", share, *look.key), lambda: layer_parts.bars(rows, share, look.subtitle, look.theme)
    )
    table = pd.DataFrame(
        [{"way": r.impl, "part": p, **v} for r in rows for p, v in layer_parts.of(r).items()]
    )
    elements.chart(fig, look.name("parts"), table)
    elements.note(
        "From one profiled pass. What a graph replays is divided as the same calls made one by one, what torch.compile made by the "
        "order of its products and attentions: what it fused across two parts is counted with one of them."
    )
    for r in rows:
        if r.status == "ok" and not layer_parts.of(r):
            elements.note(f"{short(r.impl)} has no layer parts; the run's log says why.")
    if not look.one_case:
        elements.note("Shown for the last case; choose one above.")


def _memory(state: url.State, choice: Choice, look: views.Look | None) -> None:
    if look is None:
        elements.note(_NO_RUN)
        return
    words = {
        "weights_bytes": "weights",
        "kept_bytes": "kept by the way",
        "call_bytes": "a call's own",
        "peak_bytes": "allocator peak",
        "nvml_process_bytes": "process by NVML",
    }
    lines = [
        {"way": short(r.impl)}
        | {
            f"{word} (MiB)": _times(((r.extra or {}).get("memory") or {}).get(k), 2**-20)
            for k, word in words.items()
        }
        for r in look.rows
    ]
    elements.table(
        pd.DataFrame(lines),
        look.name("memory"),
        lambda: csv(look.rows, look.baseline),
        why={c: "not known on this device" for c in lines[0] if c != "way"},
    )
    elements.note(
        "Kept: what the way holds between calls beyond the weights (graphs, packed weights, tables). A call's own: the most that "
        "it allocates while it runs."
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
        elements.note("The choice is not complete; the form says what is missing.")
        return
    st.code(command.model(spec), language="bash", wrap_lines=True)
    with st.expander("The whole specification" + (" and environment" if look else "")):
        st.json(
            {"spec": json.loads(json.dumps(dict(spec)))}
            | ({"environment": dict(look.run.environment)} if look else {}),
            expanded=1,
        )


def _accuracy(state: url.State, choice: Choice, look: views.Look | None) -> None:
    accuracy.draw(state, choice)


def _anatomy(state: url.State, choice: Choice, look: views.Look | None) -> None:
    anatomy.draw(choice)


def _main(r: Record):
    return getattr(r.time_ms, r.main_mode) if r.main_mode else None


def _times(value, factor: float):
    return None if value is None else value * factor


_VIEWS = {
    "Table": _table,
    "Times": _run_view("Times"),
    "Sweep": _run_view("Sweep"),
    "Layer parts": _parts,
    "Memory": _memory,
    "Accuracy": _accuracy,
    "Parameters": _anatomy,
    "Trace": _run_view("Trace"),
    "Reproduce": _reproduce,
}
NAMES = list(_VIEWS)

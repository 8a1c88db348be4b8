"""Predicted layouts over 2 to 1,024 devices, from what a run measured on one device and between its ranks."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from fusescope import models
from fusescope.charts import numbers
from fusescope.charts.scaling import devices
from fusescope.charts.scaling.devices import Predicted
from fusescope.core.records import Record, Run
from fusescope.models.describe import layouts, predicted
from pages._ui.answer import parallel_sizes
from pages._ui.app import url
from pages._ui.forms import fields
from pages._ui.widgets import elements, html_table
from pages._ui.widgets.text import device_text, md

_PIECES = (1, 2, 4, 8, 16, 32)
_SHOWN = 3  # layouts for each number of devices
_GIB = 2**30
_IS_BOUND = "host-bound"
_BOUND = (
    "≥: host-bound, launches take a rank half of its time or more, so the time is a lower bound and a "
    "measured one can be far above it."
)


def curves(run: Run) -> Predicted:
    """Each attention in each scheme alone over the devices; nothing where the run does not allow it."""
    pieces = int(run.spec.get("micro_batches") or 1)
    found = {}
    for attention in dict.fromkeys(layouts.named(i)[0] for i in run.spec["impls"]):
        try:
            base = _basis(run, attention)
        except ValueError:
            continue
        single = base.compute.ms(1, base.case["batch"])
        for scheme in devices.SCHEMES:
            rows = [
                (n, p.ms, p.host_bound) for n in predicted.COUNTS if (p := base.scheme(scheme, n, pieces))
            ]
            if rows:
                found[attention, scheme] = [(1, single, False), *rows]
    return found


def draw(state: url.State, run: Run, records: Sequence[Record]) -> None:
    """The fastest layout predicted, what would help it, and how good predictions are; then the layouts that
    fit, and those that the run measured."""
    found = predicted.compared(records, run.environment)
    _layouts(state, run, found)
    _measured_table(run, found)


def _layouts(state: url.State, run: Run, measured: Sequence[predicted.Compared]) -> None:
    # The settings belong to the run: another one starts from its own, and so does a link without any.
    if state.query.get("run", run.id if state.opened else None) == run.id:
        state.scopes.add(run.id)
    a, b, c = st.columns(3, vertical_alignment="bottom")
    known = float(run.environment.get("memory_bytes") or 0) / _GIB
    batch = fields.whole(
        state,
        "p_batch",
        "sequences in all",
        1,
        1 << 16,
        int(run.spec["cases"][0]["batch"]),
        scope=run.id,
        box=a,
    )
    room = fields.whole(
        state, "p_memory", "GiB of a device", 1, 4096, max(1, int(known) or 80), scope=run.id, box=b
    )
    names = list(dict.fromkeys(layouts.named(i)[0] for i in run.spec["impls"]))
    attention = fields.pick(state, "p_attention", "attention", names, names[0], scope=run.id, box=c)
    try:
        fields.refuse(state)
        base = _basis(run, attention, batch)
    except ValueError as error:
        st.info(md(str(error)))
        return
    single = base.compute.ms(1, batch)
    best = [(n, base.best(n, _PIECES, room * _GIB)) for n in predicted.COUNTS]
    rows = [
        {
            "devices": n,
            "layout": str(layouts.Layout(p.tp, p.pp, p.dp)),
            "micro-batches": p.micro_batches,
            "ms": p.ms,
            "speed-up": single / p.ms,
            "communication %": 100 * p.communication_ms / p.ms,
            "bubble %": 100 * p.bubble_ms / p.ms,
            "GiB per rank": p.memory_bytes / _GIB,
            "arithmetic": "measured" if p.measured else "fitted",
            _IS_BOUND: p.host_bound,
        }
        for n, found in best
        for p in found[:_SHOWN]
    ]
    if not rows:
        st.info(f"No layout of 2 to 1,024 devices takes {batch:,} sequences within {room:,} GiB per device.")
        return
    first = min((found[0] for _, found in best if found), key=lambda p: p.ms)
    name, least = layouts.Layout(first.tp, first.pp, first.dp), "at least " if first.host_bound else ""
    st.markdown(
        f"**Fastest predicted ({md(parallel_sizes.sizes(run, batch))}): {name} on {first.ranks:,} × "
        f"{md(device_text(run.device_name))}, {least}{numbers.time(first.ms)}**, "
        f"one device {numbers.time(single)}."
    )
    if helps := [h for h in base.helps(first) if h.ms < 0.99 * first.ms]:
        lines = [
            f"- {md(h.what)}: {numbers.time(h.ms)} ({numbers.percent(1 - h.ms / first.ms)} less)"
            for h in helps
        ]
        st.markdown("What would help it most, if it cost nothing:\n" + "\n".join(lines))
    _quality(measured)
    data = pd.DataFrame(rows)
    html_table.draw(_bounds(data, ms="≥ ", **{"speed-up": "≤ "}), {}, f"predicted-{run.id}", html_table.TALL)
    elements.csv(data, f"predicted_{run.id}")
    if any(p.host_bound for _, found in best for p in found[:_SHOWN]):
        st.caption(_BOUND)
    st.caption(
        f"Up to {_SHOWN} layouts per number of devices, fastest first. Communication comes from the run's "
        "collectives, as if all links were like its own; memory is a lower bound. " + _fit(base)
    )


def _fit(base: predicted.Basis) -> str:
    """Where arithmetic comes from, and how well the fit meets the times that it was fitted to."""
    most = max(batch for _, batch in base.compute.measured)
    return (
        "Arithmetic “measured”: the run timed this share of a rank on one device. “Fitted”: interpolated "
        f"between such times, and extrapolated above {numbers.plural(most, 'sequence')} per rank; the fit "
        f"misses those times themselves by at most {numbers.percent(base.compute.worst)}."
    )


def _quality(found: Sequence[predicted.Compared]) -> None:
    """How near predictions come to what the run measured: a host-bound one is a lower bound, which is no
    error."""
    errors = [abs(c.error) for c in found if c.error is not None]
    if errors:
        st.markdown(
            f"**How good predictions are:** {len(errors)} of {numbers.plural(len(found), 'measurement')} of "
            f"this run on several devices are predicted to within {numbers.percent(max(errors))}."
        )
    elif found:
        st.markdown("**Every prediction for a measured layout is host-bound, a lower bound.**")


def _measured_table(run: Run, found: Sequence[predicted.Compared]) -> None:
    """The layouts that the run measured, and what is predicted for them."""
    if not found:
        return
    rows = [
        {
            "layout": c.impl,
            "scaling": c.scaling,
            "batch": c.case["batch"],
            "measured ms": c.measured_ms,
            "predicted ms": c.predicted_ms,
            "prediction off by %": None if c.error is None else 100 * c.error,
            _IS_BOUND: c.host_bound,
        }
        for c in found
    ]
    st.markdown("**Measured layouts and their predictions**")
    data = pd.DataFrame(rows).astype({"prediction off by %": float})
    shown = _bounds(data, **{"predicted ms": "≥ "})
    html_table.draw(shown, {"prediction off by %": _BOUND}, f"compared-{run.id}")
    elements.csv(data, f"compared_{run.id}")


def _bounds(data: pd.DataFrame, **signs: str) -> pd.DataFrame:
    """The table to read: where a prediction is host-bound, the sign before the value of a column."""
    found = data[_IS_BOUND]
    texts = {
        column: [
            (sign if bound else "") + numbers.three(v) for v, bound in zip(data[column], found, strict=True)
        ]
        for column, sign in signs.items()
        if found.any()
    }
    return data.assign(**texts).drop(columns=_IS_BOUND)


def _basis(run: Run, attention: str, batch: int | None = None) -> predicted.Basis:
    if lacking := [key for key in ("op", "cases", "baseline", "dtype") if not run.spec.get(key)]:
        raise ValueError(f"the run's configuration lacks {lacking[0]}")
    name = models.named(run.spec["op"])
    case = dict(run.spec["cases"][0]) | ({"batch": batch} if batch else {})
    return predicted.basis(name, case, run.spec["dtype"], attention, run.environment)

"""A caption on the Models page: what the same model gains over several devices, on which case, with a link to
Scaling."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from fusescope.analysis.scaling import measured
from fusescope.charts import numbers
from fusescope.core.records import Record, Run
from fusescope.store import library
from pages._ui.answer import parallel_sizes
from pages._ui.app import run_data, url
from pages._ui.widgets.text import device_text, md

_LIMIT = 20


def draw(op: str) -> None:
    """Nothing where no parallel run of ``op`` has a time on several devices."""
    for run in _preferred(library.runs(kind="parallel", op=op, limit=_LIMIT)[0]):
        if not run.live and (gains := said(run_data.records(run.id), str(run.spec.get("baseline")))):
            device = "GPUs" if _on_gpus(run) else "processes"
            there = url.link("scaling", run=run.id)
            source = "recorded on" if run.recorded else "on"
            where = f"{parallel_sizes.settings(run)}, {source} {device_text(run.device_name)}"
            st.caption(f"Over several {device}, at {md(where)}: {md(gains)} [→ Scaling]({there})")
            return


def said(records: Iterable[Record], baseline: str) -> str:
    """ "dp4 3.55×, tp4 2.03×, pp4 1.78× against sdpa on one device": of the first case, on the same work, the
    largest layout of each scheme with the baseline's attention, fastest first; "" without any."""
    listed = [s for s in measured.series(records) if s.scaling == "strong" and s.attention == baseline]
    largest = [s.points[-1][1] for s in listed if s.case == listed[0].case]
    found = sorted((r for r in largest if r.speedup), key=lambda r: -r.speedup.median)
    text = ", ".join(f"{r.impl.removeprefix(baseline + '-')} {_gain(r)}" for r in found)
    return text and f"{text} against {baseline} on one device"


def _gain(record: Record) -> str:
    """ "2.03×", "1.46× slower"; what is not decided is no figure."""
    gain = record.speedup
    if gain.verdict == "slower":
        return numbers.faster(gain.median)
    return numbers.ratio(gain.median) if gain.verdict == "faster" else gain.verdict


def _preferred(runs: Iterable[Run]) -> list[Run]:
    """On GPUs first, else newest first."""
    return sorted(runs, key=lambda run: not _on_gpus(run))


def _on_gpus(run: Run) -> bool:
    return not str(run.spec.get("device")).startswith("cpu")

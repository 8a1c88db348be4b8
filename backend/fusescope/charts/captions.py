"""Texts under the titles of charts: runs, cases and timing modes."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from fusescope.core.records import Record, Run


def date(unix_seconds: float | None) -> str:
    """ "20 Nov 2026 10:42" in local time, "" for None."""
    if unix_seconds is None:
        return ""
    return datetime.datetime.fromtimestamp(unix_seconds).strftime("%d %b %Y %H:%M").lstrip("0")


def context(run: Run) -> str:
    """Device, dtype and date of a run: what stands under the title of each of its charts."""
    dtype = str(run.spec.get("dtype") or "")
    parts = [run.device_name, dtype, date(run.finished or run.started or run.created)]
    return " · ".join(w for w in parts if w)


def mode(mode: str | None) -> str:
    """What exactly a time of this mode is."""
    return {
        "graph": "kernel time (graph replay), warm cache",
        "graph_cold": "kernel time (graph replay), cold cache",
        "eager": "eager call, warm cache",
        "eager_cold": "eager call, cold cache",
    }.get(mode or "", "no time")


def case(record: Record) -> str:
    """A case as "batch=8, seq=512, mask=bigbird": what a person would type; what follows from the rest is
    left out."""
    return case_of(record.case)


def case_of(case: Mapping) -> str:
    """The same for a case, or a part of one, by itself."""
    follows = {"seq_k": "seq", "kv_heads": "heads"}
    shown = {
        k: v
        for k, v in case.items()
        if v not in (None, "none") and (k not in follows or v != case.get(follows[k]))
    }
    return ", ".join(f"{k}={v}" for k, v in shown.items())


def when(run: Run) -> str:
    """The date of a run: when it finished, else started, else was created."""
    return date(run.finished or run.started or run.created)

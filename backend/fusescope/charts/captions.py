"""Texts under the titles of charts: runs, cases and timing modes."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Mapping

from fusescope.core.records import Record, Run
from fusescope.core.schema.cases import FOLLOWS


def date(unix_seconds: float | None) -> str:
    """ "20 Nov 2026 10:42" in local time, "" for None."""
    if unix_seconds is None:
        return ""
    return datetime.datetime.fromtimestamp(unix_seconds).strftime("%d %b %Y %H:%M").lstrip("0")


def context(run: Run, clock: bool = True, operands: str = "") -> str:
    """Device, dtype and date of a run, with or without the time of day: what stands under the title of each
    of its charts. ``operands``: which implementations multiply in another dtype, "v1_hopper: e4m3"."""
    moment = date(run.ended)
    dtype = str(run.spec.get("dtype") or "") + (f" ({operands})" if operands else "")
    parts = [device(run.device_name), dtype, moment if clock else moment.rpartition(" ")[0]]
    return " · ".join(w for w in parts if w)


def device(name: str) -> str:
    """A device's name without what every name of its maker has: "Intel Xeon" of "Intel(R) Xeon(R)
    Processor"."""
    return re.sub(r"\((?:R|TM)\)|\s(?:Processor|CPU)\b|\s@\s.*", "", name).strip()


def short_device(name: str) -> str:
    """A device as a cell of a table has room for it: "H200", "H100" of "NVIDIA H100 80GB HBM3"."""
    return re.sub(r"\s\d+\s?GB(\s(HBM|GDDR)\w+)?$", "", device(name).removeprefix("NVIDIA ")).strip()


def mode(mode: str | None) -> str:
    """What exactly a time of this mode is."""
    return {
        "graph": "kernel time, warm",
        "graph_cold": "kernel time, cold",
        "eager": "eager call, warm",
        "eager_cold": "eager call, cold",
    }.get(mode or "", "no time")


def case(record: Record) -> str:
    """A case as "batch=8, seq=512, mask=bigbird", with the words for lengths; what follows from the rest is
    left out."""
    return case_of(record.case)


def case_of(case: Mapping) -> str:
    """The same for a case, or a part of one, on its own."""
    return ", ".join(f"{k}={_words(k, v)}" for k, v in told(case).items())


def _words(key: str, value: object) -> object:
    """ "unequal (mean 0.6)" of lengths, as the boxes say; listed ones as they are."""
    said = lengths(str(value)) if key == "lengths" else value
    return value if said == "listed" else said


def told(case: Mapping) -> dict:
    """The parameters of a case without those that are not set or follow from another."""
    return {
        k: v
        for k, v in case.items()
        if v not in (None, "none") and (k not in FOLLOWS or v != case.get(FOLLOWS[k]))
    }


def lengths(text: str) -> str:
    """The parameter ``lengths`` of any operator or model as pages write it: "equal", "unequal (mean 0.6)",
    "listed"; what is none of these as it is."""
    form = text.partition(":")[0]
    if form in ("fixed", "full"):
        return "equal"
    if form in ("drawn", "uniform"):
        low = re.search(r"low=(\d*\.?\d+)", text)
        return f"unequal (mean {(1 + float(low[1] if low else 0.2)) / 2:.3g})"
    return "listed" if "+" in text else text


def when(run: Run) -> str:
    """The date of a run: when it finished, else started, else was created; one that this machine's clock has
    not reached is said."""
    return date(run.ended) + (" (in the future)" if (run.ended or 0) > time.time() + 60 else "")

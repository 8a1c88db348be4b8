"""What benchmarks measured of the work that a profile shows, without a profiler that slows down the host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.core.records import Run
from fusescope.store import answers
from pages._ui.app import run_data

_NEAREST = 8  # cases that are looked at


@dataclass(frozen=True)
class Measured:
    """run: the benchmark; ms: time of a call launched from the host, by implementation; differs: {setting:
    (of the profile, of the benchmark)}, empty where it is the same case."""

    run: str
    ms: Mapping[str, float]
    differs: Mapping[str, tuple[Any, Any]]

    def where(self) -> str:
        """The settings that differ, as measured: "seq 512, batch 16"."""
        return ", ".join(f"{name} {had}" for name, (_, had) in self.differs.items())


def of(run: Run, *impls: str) -> Measured | None:
    """The benchmark on the same device and in the same dtype that measured all of ``impls``, on the profile's
    case or the nearest to it; None where there is none."""
    spec, home = run.spec, paths.profiles()
    if not spec.get("op") or not isinstance(spec.get("case"), dict) or not spec.get("dtype"):
        return None
    stamp = home.stat().st_mtime_ns if home.is_dir() else 0
    case = json.dumps(dict(spec["case"]), sort_keys=True)
    return _of(str(spec["op"]), case, str(spec["dtype"]), run.device_name, impls, str(home), stamp)


@st.cache_data(ttl=60, max_entries=256, show_spinner=False)
def _of(
    op: str, case: str, dtype: str, device_name: str, impls: tuple[str, ...], home: str, stamp: int
) -> Measured | None:
    try:
        nearest = answers.find(
            answers.Question(op, json.loads(case), dtype, device_name), _NEAREST, impls=impls
        )
        for one in nearest:
            if not {"device", "dtype"} & one.differs.keys():
                ms = _times(one)
                if all(impl in ms for impl in impls):
                    return Measured(one.run, {impl: ms[impl] for impl in impls}, dict(one.differs))
    except (RunError, TypeError, ValueError, AttributeError):  # no DuckDB, a torn run, a case unknown here
        pass
    return None


def _times(found: answers.Found) -> dict[str, float]:
    records = [r for r in run_data.records(found.run) if r.dtype == found.dtype and r.case == found.case]
    return {r.impl: r.time_of("eager").median for r in records if r.status == "ok" and r.time_of("eager")}

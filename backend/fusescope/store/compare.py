"""Two runs side by side: what differs about how they were taken, and their records pair by pair."""

from __future__ import annotations

import json
from pathlib import Path

from fusescope.core import same_code
from fusescope.core.records import HEADLINE, Record, Run
from fusescope.store import folder, library

_FACTS = {  # of the environment: whether equal figures can be expected at all hangs on these
    "device_name": "device",
    "device_uuid": "GPU",
    "driver": "driver",
    "torch": "torch",
    "torch_cuda": "torch's CUDA",
    "nvcc": "nvcc",
    "gxx": "g++",
    "python": "Python",
    "cpu_name": "CPU",
    "cpu_threads": "CPU threads",
}
_SETTINGS = {"dtype": "dtype", "cache": "cache mode", "baseline": "baseline", "seed": "seed of the inputs"}
_COLUMNS = ["op", "impl", "case", "dtype", "device", "mode", "a_ms", "b_ms", "ratio", "verdict"]
_COLUMNS += ["a_status", "b_status", "a_hash", "b_hash"]


def differences(run_a: str | Path, run_b: str | Path) -> list[str]:
    """What differs about how two runs were taken, a sentence each; empty where nothing does. Ids or
    folders."""
    a, b = _folder(run_a), _folder(run_b)
    left, right = folder.read(a), folder.read(b)
    found = []
    for key, name in _FACTS.items():
        found += _differ(name, left.environment.get(key), right.environment.get(key))
    for key, name in _SETTINGS.items():
        found += _differ(name, left.spec.get(key), right.spec.get(key))
    found += _clocks(left, right, a, b)
    records_a, records_b = folder.records(a), folder.records(b)
    hashes_a, hashes_b = _hashes(records_a), _hashes(records_b)
    for op, impl in sorted(hashes_a.keys() & hashes_b.keys()):
        was, now = hashes_a[op, impl], hashes_b[op, impl]
        note = " (source edited, same machine code)" if same_code.same(op, impl, was, now) else ""
        found += [said + note for said in _differ(f"source of {op} {impl}", was, now)]
    for run, records in ((left, records_a), (right, records_b)):
        if any(r.throttled for r in records):
            found.append(f"the device was throttled in part of {run.id}")
        if run.environment.get("others_on_gpu"):
            found.append(f"other processes used the GPU during {run.id}")
        if run.status != "done":
            found.append(f"{run.id} is {run.status}: its records may not be all there")
    if not {r.case_key for r in records_a} & {r.case_key for r in records_b}:
        found.append("the two runs have no case in common")
    return found


def pairs(run_a: str | Path, run_b: str | Path):
    """A pandas DataFrame, one row for what is in either run: op, impl, case (JSON text), dtype, device, mode,
    a_ms, b_ms, ratio (a / b: above 1.0 b is faster), verdict, a_status, b_status, a_hash, b_hash.

    verdict: "faster" or "slower" (b against a) where the 95 % intervals do not meet, else "cannot tell": two
    runs were not sampled in turn, so this is weaker than the verdict within one run. Missing (NA) where there
    are not two times.
    """
    import pandas as pd

    left = {_key(r): r for r in folder.records(_folder(run_a))}
    right = {_key(r): r for r in folder.records(_folder(run_b))}
    rows = []
    for key in dict.fromkeys([*left, *right]):
        a, b = left.get(key), right.get(key)
        one = a or b
        mode = next((m for m in HEADLINE if a and b and a.time_of(m) and b.time_of(m)), None)
        ta, tb = (r and (r.time_of(mode) if mode else r.time) for r in (a, b))
        both = mode is not None
        rows.append(
            {
                "op": one.op,
                "impl": one.impl,
                "case": json.dumps(dict(one.case)),
                "dtype": one.dtype,
                "device": one.device,
                "mode": mode,
                "a_ms": ta.median if ta else None,
                "b_ms": tb.median if tb else None,
                "ratio": ta.median / tb.median if both and tb.median else None,
                "verdict": _verdict(ta, tb) if both else None,
                "a_status": a.status if a else "missing",
                "b_status": b.status if b else "missing",
                "a_hash": a.source_hash if a else None,
                "b_hash": b.source_hash if b else None,
            }
        )
    return pd.DataFrame(rows, columns=_COLUMNS)


def _folder(run: str | Path) -> Path:
    return run if isinstance(run, Path) else library.find(run)


def _differ(name: str, a, b) -> list[str]:
    return [] if a == b else [f"{name}: {_shown(a)} against {_shown(b)}"]


def _shown(value) -> str:
    return "unknown" if value is None else str(value)


def _clocks(left: Run, right: Run, a: Path, b: Path) -> list[str]:
    """SM clocks seen while sampling, where both runs recorded them, if their medians are more than 2 %
    apart."""
    x, y = _median_clock(a), _median_clock(b)
    if x is None or y is None:
        return [] if x == y else [f"SM clock: {_megahertz(x)} against {_megahertz(y)}"]
    return (
        [f"SM clock (median): {_megahertz(x)} against {_megahertz(y)}"]
        if abs(x - y) > 0.02 * max(x, y)
        else []
    )


def _median_clock(path: Path) -> float | None:
    states = [s for line in folder.samples(path) for s in line.get("state") or [] if isinstance(s, dict)]
    clocks = sorted(s["sm_mhz"] for s in states if isinstance(s.get("sm_mhz"), int | float))
    return clocks[len(clocks) // 2] if clocks else None


def _megahertz(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f} MHz"


def _hashes(records: list[Record]) -> dict[tuple[str, str], str]:
    return {(r.op, r.impl): r.source_hash for r in records if r.source_hash}


def _key(r: Record) -> tuple[str, str]:
    return r.case_key, r.impl


def _verdict(a, b) -> str:
    if b.high < a.low * 0.99:
        return "faster"
    return "slower" if b.low > a.high * 1.01 else "cannot tell"

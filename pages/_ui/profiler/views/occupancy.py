"""Occupancy of a profile's kernels theoretical, grid-limited and measured, and the calculator started from
one of them."""

from __future__ import annotations

import pandas as pd

from pages._ui.app import url
from pages._ui.forms import fields, occupancy
from pages._ui.profiler import join, sentences
from pages._ui.profiler.data import Profile
from pages._ui.widgets import elements


def draw(state: url.State, found: Profile) -> None:
    """A table of kernels, and the sliders."""
    if not found.has("kernel_summary") and not found.has("ncu_kernels"):
        sentences.tables_missing(found) or sentences.lacks(
            "GPU kernels", "Only CUDA kernels have an occupancy."
        )
        return
    trace, report = join.choose(state, found)
    data, starts = _of_trace(found, trace, report) if found.has("kernel_summary") else _of_report(found)
    elements.table(
        data,
        found.name("occupancy"),
        height=420,
        why=sentences.why("" if found.has("kernel_summary") else "ncu_kernels"),
    )
    elements.note(
        "Theoretical: what the launch configuration allows per SM. Grid-limited: with no more blocks "
        "than the grid has per SM. "
        "Measured: by Nsight Compute. Kineto's own estimate is not used: it is 0 above 48 KiB of shared "
        "memory."
    )
    names = list(starts)
    chosen = fields.pick(state, "kernel", "Occupancy calculator: start from", names, scope=found.id)
    cc = next((g.get("cc") for g in (found.summary or {}).get("gpus", ()) if g.get("cc")), None)
    occupancy.what_if(
        state, {"cc": starts[chosen].pop("cc", None) or cc} | starts[chosen], f"{found.id}/{chosen}"
    )


def _of_trace(
    found: Profile, trace: Profile | None, report: Profile | None
) -> tuple[pd.DataFrame, dict[str, dict]]:
    rows, measured = sentences.rows(found, "kernel_summary"), join.measured(trace, report)
    lines, starts = [], {}
    for r in rows:
        lines.append(
            _line(r["name"], r["calls"], r["total_ns"])
            | {
                "theoretical (%)": _percent(r["occupancy"]),
                "measured (%)": _percent(measured.get(r["name"])),
                "grid-limited (%)": _percent(r["grid_occupancy"]),
                "limiter": r["limiter"],
            }
            | _launch(r)
            | {"shared (B)": r["shared_bytes"]}
        )
        starts[r["name"]] = {
            "block": _threads(r),
            "registers": r["registers"],
            "static": 0,
            "dynamic": r["shared_bytes"],
        }
    return _whole(lines), starts


def _of_report(found: Profile) -> tuple[pd.DataFrame, dict[str, dict]]:
    lines, starts = [], {}
    for n, r in enumerate(sentences.rows(found, "ncu_kernels")):
        lines.append(
            _line(f"{n}: {r['name']}", r.get("calls") or 1, r.get("duration_ns"))
            | {
                "theoretical (%)": _percent(r.get("occupancy")),
                "measured (%)": _percent(r.get("measured_occupancy")),
                "ncu's theoretical (%)": _percent(r.get("ncu_occupancy")),
                "limiter": r.get("limiter"),
            }
            | _launch(r)
            | {"static (B)": r.get("static_bytes"), "dynamic (B)": r.get("dynamic_bytes")}
        )
        starts[f"{n}: {r['name']}"] = {
            "cc": r.get("cc"),
            "block": _threads(r),
            "registers": r.get("registers"),
            "static": r.get("static_bytes"),
            "dynamic": r.get("dynamic_bytes"),
        }
    return _whole(lines), {
        k: {n: None if v is None or v != v else v if n == "cc" else int(v) for n, v in s.items()}
        for k, s in starts.items()
    }


def _line(name: str, calls, ns) -> dict:
    return {"kernel": name, "calls": calls, "total (µs)": None if ns is None else ns / 1e3}


def _launch(r: dict) -> dict:
    return {"grid": _shape(r, "grid"), "block": _shape(r, "block"), "registers": r.get("registers")}


def _shape(r: dict, what: str) -> str | None:
    sides = [r.get(f"{what}_{axis}") for axis in "xyz"]
    return None if any(s is None or s != s for s in sides) else " × ".join(f"{int(s):,}" for s in sides)


def _threads(r: dict) -> int | None:
    sides = [r.get(f"block_{axis}") for axis in "xyz"]
    return None if any(s is None or s != s for s in sides) else int(sides[0] * sides[1] * sides[2])


def _percent(value) -> float | None:
    return None if value is None or value != value else 100 * float(value)


def _whole(lines: list[dict]) -> pd.DataFrame:
    data = pd.DataFrame(lines)
    for column in data.columns:
        if column.endswith("(%)") or column.endswith("(µs)"):
            data[column] = data[column].astype(float)
        elif column.endswith("(B)") or column in ("registers", "calls"):
            data[column] = data[column].astype(float).round().astype("Int64")
    return data

"""A profile's tables as text: where the time goes, what is idle, what limits it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from fusescope.analysis.profile import device_time
from fusescope.analysis.profile.advice import recommend
from fusescope.analysis.profile.device_time import DeviceTime
from fusescope.analysis.profile.verdict import verdict
from fusescope.charts.numbers import NA, percent, three
from fusescope.cli.output import table
from fusescope.store import profile, timeline

_TOP = 12


def found(path: Path) -> dict:
    """What a run's artifacts hold of a profile: summary, verdict, kernels (longest first), ncu; null where
    there is none."""
    summary, names = profile.summary(path), profile.names(path)

    def rows(name: str) -> list[dict]:
        return profile.rows(path, name, _TOP) if name in names else []

    kernels = rows("kernel_summary")
    if "kernel_summary" not in names and (alone := profile.facts(path, "kernels")):
        kernels = [_row(k) for k in alone["kernels"][:_TOP]]  # no pyarrow where it was collected
    ncu = profile.rows(path, "ncu_kernels") if "ncu_kernels" in names else []
    parts = device_time.read(timeline.device_activities(path)) if summary else None
    steps = max(1, len(profile.rows(path, "steps"))) if "steps" in names else 1
    told = summary and summary["source"] != "snapshot"
    limit = verdict(summary, ncu, parts=parts, steps=steps) if told else None
    return {
        "summary": summary,
        "verdict": None
        if limit is None
        else {"kind": limit.kind, "because": list(limit.because), "numbers": dict(limit.numbers)},
        "recommendations": [asdict(r) for r in _advice(path, summary, ncu, parts, steps)] if limit else [],
        "kernels": kernels,
        "operators": rows("operator_summary"),
        "modules": rows("module_summary"),
        "ncu": ncu[:_TOP],
        "stalls": rows("ncu_stalls"),
    }


def _advice(path: Path, summary: dict, ncu: list[dict], parts: DeviceTime | None, steps: int) -> list:
    names = profile.names(path)
    kernels, rules = (
        profile.rows(path, name) if name in names else [] for name in ("kernel_summary", "ncu_rules")
    )
    copies, sequence = profile.copies_by_name(path), profile.kernel_sequence(path)
    return recommend(summary, kernels, copies, sequence, rules, ncu, steps, parts)


def _row(row: dict) -> dict:
    """A row of kernels.json with the keys of kernel_summary; what it does not hold is None."""
    found = {f"{k}_ns": round(row[f"{k}_us"] * 1000) for k in ("total", "mean", "min", "max")}
    found |= {k: row.get(k) for k in ("name", "calls", "registers", "shared_bytes")}
    for name in ("grid", "block"):
        found |= dict(zip((f"{name}_{axis}" for axis in "xyz"), row.get(name) or (None,) * 3))
    return found | dict.fromkeys(
        ("share", "occupancy", "grid_occupancy", "limiter", "launch_delay_ns", "operator", "module")
    )


def words(data: dict) -> str:
    """The same for people."""
    lines: list[str] = []
    if data["verdict"]:
        lines += [f"{data['verdict']['kind']}: {'; '.join(data['verdict']['because'])}", ""]
    for advice in data["recommendations"]:
        gain = f" (at most {three(advice['gain'])}×)" if advice["gain"] else ""
        lines += [f"→ {plain(advice['title'])}{gain}: {plain(advice['says'])}"]
    lines += [""] if data["recommendations"] else []
    if data["kernels"]:
        body = [
            [
                plain(k["name"])[:60],
                f"{k['calls']:,}",
                _us(k["total_ns"]),
                percent(k["share"]),
                _us(k["mean_ns"]),
                percent(k["occupancy"]),
                percent(k["grid_occupancy"]),
                k["limiter"] or NA,
                plain(k["operator"] or NA),
            ]
            for k in data["kernels"]
        ]
        head = [
            "kernel",
            "calls",
            "total µs",
            "share",
            "mean µs",
            "occupancy",
            "by grid",
            "limiter",
            "operator",
        ]
        lines += [table(head, body, "lrrrrrrll"), ""]
    elif data["operators"]:
        body = [
            [plain(o["name"])[:60], f"{o['calls']:,}", _us(o["host_ns"]), _us(o["self_host_ns"])]
            for o in data["operators"]
        ]
        lines += [table(["operator", "calls", "host µs", "self µs"], body, "lrrr"), ""]
    if data["ncu"]:
        body = [
            [
                plain(k["name"])[:60],
                _number(k["sm_percent"]),
                _number(k["memory_percent"]),
                _number(k["tensor_percent"]),
                percent(k["measured_occupancy"]),
                percent(k["occupancy"]),
                k["limiter"] or NA,
            ]
            for k in data["ncu"]
        ]
        head = ["kernel", "SM %", "memory %", "tensor %", "measured occ.", "theoretical", "limiter"]
        lines += [table(head, body, "lrrrrrl"), ""]
    lines += [f"stalled {percent(s['share'])} {plain(s['reason'])}" for s in data["stalls"][:5]]
    lines += [f"! {plain(note)}" for note in (data["summary"] or {}).get("notes", ())]
    return "\n".join(lines).rstrip()


def plain(text: str) -> str:
    """A stranger's name without what a terminal would obey."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _us(ns: float) -> str:
    return three(ns / 1000)


def _number(value: float | None) -> str:
    return NA if value is None or value != value else three(value)

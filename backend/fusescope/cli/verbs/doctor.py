"""``doctor``: what this machine has and lacks, each with its fix."""

from __future__ import annotations

import dataclasses

from fusescope.core.doctor import examine
from fusescope.core.machine import environment

HELP = "examine this machine: compiler, driver, torch, caches; name each cause and its fix"
_MARKS = {"ok": "✓", "warn": "!", "fail": "✗"}


def arguments(parser, words) -> None:
    pass


def run(args, out) -> int:
    findings = examine()
    devices = environment.devices()
    facts = environment.collect(devices[0])
    failed = any(f.status == "fail" for f in findings)
    lines = [
        f"{facts['device_name']} ({devices[0]}), torch {facts['torch']}, nvcc {facts['nvcc'] or 'none'}",
        "",
    ]
    for f in findings:
        lines.append(f"{_MARKS[f.status]} {f.check}: {f.says}")
        if f.fix and f.status != "ok":
            lines.append(f"    fix: {f.fix}")
    words = [
        f"{sum(f.status == s for f in findings)} {s}" for s in _MARKS if any(f.status == s for f in findings)
    ]
    data = {
        "ok": not failed,
        "devices": devices,
        "environment": facts,
        "findings": [dataclasses.asdict(f) for f in findings],
    }
    out.answer(data, "\n".join([*lines, "", ", ".join(words)]))
    return 1 if failed else 0

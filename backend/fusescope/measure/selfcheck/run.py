"""The self-check from its specification to the report."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from fusescope.core.reporter import Reporter
from fusescope.measure import machine
from fusescope.measure.selfcheck import agreement, bias, catching, pairs
from fusescope.measure.selfcheck.row import Row

SCHEMA = 1
_COMPARISON_S, _CHECK_S, _OTHER_S = 4.0, 0.05, 3.0  # about, on two cores
REPORT = "selfcheck"


def run(spec: Mapping[str, Any], reporter: Reporter) -> None:
    """Do every part and leave artifacts/selfcheck.json.gz: {schema, date, device, rows, passed, failed,
    open}.

    spec: device, runs (comparisons of equal implementations; as many of each planted slow-down, at most
    pairs.MOST_PLANTED), seeds (of each wrong kernel), loops (other processes that keep a CPU busy meanwhile),
    seed.
    """
    facts = machine.ready(spec["device"])
    reporter.environment(**facts)
    machine.load_kernels(spec["device"], reporter)
    begun = time.time()
    with pairs.busy_loops(spec["loops"]):
        rows = _rows(spec, reporter)
    report = {"schema": SCHEMA, "date": begun, "device": spec["device"], "loops": spec["loops"]}
    report |= {"device_name": facts.get("device_name"), "rows": [row.to_json() for row in rows]}
    report |= {
        name: sum(row.passed is state for row in rows)
        for name, state in (("passed", True), ("failed", False), ("open", None))
    }
    with gzip.open(reporter.artifact(f"{REPORT}.json.gz"), "wt") as file:
        json.dump(report, file)


def _rows(spec: Mapping[str, Any], reporter: Reporter) -> list[Row]:
    device, runs, seed = spec["device"], spec["runs"], spec["seed"]
    checks, few = 2 * spec["seeds"] * _CHECK_S, min(runs, pairs.MOST_PLANTED)
    step = _steps(
        reporter,
        [_COMPARISON_S] * (runs + few * len(pairs.PLANTED))
        + [_COMPARISON_S] * (2 * len(bias.SHAPES) if device != "cpu" else 0)
        + [checks] * len(catching.names())
        + [_OTHER_S] * (len(agreement.OTHERS) if device != "cpu" else 1),
    )
    rows = [pairs.equal(device, runs, seed, reporter, step)]
    rows += [pairs.planted(share, device, few, seed, reporter, step) for share in pairs.PLANTED]
    if device != "cpu":
        rows += [part(device, seed, reporter, step) for part in (bias.equal, bias.planted)]
    rows += catching.rows(device, range(seed, seed + spec["seeds"]), reporter, step)
    return rows + agreement.rows(device, step)


def _steps(reporter: Reporter, expected: list[float]) -> Callable[[str], None]:
    """Progress by steps that take about the seconds ``expected``, corrected by how long those before took."""
    begun, total, done = time.monotonic(), len(expected), -1

    def step(text: str) -> None:
        nonlocal done
        reporter.check()
        done = min(done + 1, total - 1)
        planned = sum(expected[:done])
        pace = (time.monotonic() - begun) / planned if planned else 1.0
        reporter.progress(done, total, text, pace * sum(expected[done:]))

    return step

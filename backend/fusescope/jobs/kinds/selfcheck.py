"""The instrument's own error: the job behind ``selfcheck``."""

from __future__ import annotations

from fusescope.core.schema import Parameter, complete
from fusescope.jobs.spec.common import DEVICE, SEED

TITLE = "Self-check"
PARAMETERS = (
    DEVICE,
    Parameter("runs", "int", 10, "comparisons of equal implementations", low=1, high=1000),
    Parameter("seeds", "int", 2, "inputs that each wrong kernel is tried on", low=1, high=1000),
    Parameter("loops", "int", 0, "other processes that keep a CPU busy meanwhile", low=0, high=64),
    SEED,
)


def validate(spec: dict) -> dict:
    """{device, runs, seeds, loops, seed}, complete. ValueError: the rule, the value given, what is
    supported."""
    return complete("a self-check", PARAMETERS, spec)


def name(spec: dict) -> str:
    loops = spec.get("loops") or 0
    return f"self-check on {spec.get('device', 'cpu')}" + (f", {loops} busy loops" if loops else "")


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    from fusescope.measure.selfcheck import run as selfcheck

    selfcheck.run(spec, reporter)

"""Every distinct fusion scheme of some ranges, checked and timed: the job behind the Fusion page's map and
``traverse``."""

from __future__ import annotations

from typing import Any

from fusescope.core.schema import Parameter
from fusescope.jobs.spec import layer
from fusescope.search import sessions
from fusescope.search.scheme.setting import of_spec

TITLE = "Fusion traverse"


def _part(ends: Any) -> list[int]:
    good = isinstance(ends, list | tuple) and len(ends) == 2 and all(type(end) is int for end in ends)
    if not good or not 0 <= ends[0] < ends[1]:
        raise ValueError(f"part must be two positions, 0 ≤ start < stop, not {ends!r}")
    return list(ends)


PARAMETERS = (
    Parameter("limit", "int", None, "how many schemes at most, drawn by the seed", low=1),
    Parameter("segments", "bool", True, "time each segment on its own, too"),
    Parameter("after", "text", None, "ids of earlier traverses of this setting, separated by commas"),
    Parameter("part", "any", None, "[start, stop): positions in the order of measuring", further=_part),
)


def validate(spec: dict) -> dict:
    """A Setting as JSON, {ranges: [[first, last], …] of values, both included, or None (the default ranges);
    seed; budget_s of sampling per scheme} and PARAMETERS. ValueError: the rule, the value given.

    Codes of the runs in ``after`` are not measured again, unless they found no memory. ``part`` is the share
    of one of several runs that measure one traverse at a time.
    """
    whole = layer.complete(spec, PARAMETERS)
    if whole["after"] is not None:
        whole["after"] = sessions.check(whole["after"], of_spec(whole)) or None
    return whole


def name(spec: dict) -> str:
    return layer.name(spec, "traverse")


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    if "work" in spec:  # of a worker of a cluster
        from fusescope.search.sweeps import on_worker

        return on_worker.run(spec, reporter)
    from fusescope.search.sweeps import exhaustive

    exhaustive.run(spec, reporter)

"""A job whose specification names a cluster, from the connection to its last record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusescope.core.reporter import Reporter
from fusescope.jobs.cluster import cases, deploy, schemes
from fusescope.jobs.cluster.crew import Crew
from fusescope.jobs.spec.cluster import parse

KINDS = ("bench", "model", "traverse", "search")
_WAIT_S = {"slurm": 86400.0}  # a queue may take a day


def run(kind: str, spec: Mapping[str, Any], run_id: str, reporter: Reporter) -> None:
    """The work of a job of ``KINDS`` on ``spec["cluster"]``: workers measure, ``reporter`` here is told.

    ValueError and RuntimeError, in one sentence: no cluster there, no certificates, no worker that has the
    device. Cancelled when a stop was requested; nothing that was started for the job is left.
    """
    place, device = parse(spec["cluster"]), spec["device"]
    reporter.progress(0, 0, f"starting the cluster {spec['cluster']}")
    order = {"run": run_id, "kind": kind, "device": device}
    with deploy.client(place, device) as client:
        more = {"patience_s": _WAIT_S[place.how]} if place.how in _WAIT_S else {}
        more |= {"alike": kind in ("traverse", "search")}
        crew = Crew(client, order, reporter, locks=not (place.here and device == "cpu"), **more)
        try:
            crew.wait()
            if kind in ("bench", "model"):
                cases.run(spec, crew, reporter)
            else:
                (schemes.traverse if kind == "traverse" else schemes.search)(spec, crew, reporter)
        finally:
            crew.end()

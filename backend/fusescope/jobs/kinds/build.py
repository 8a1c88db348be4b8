"""Build the extension: the job behind the Build page and ``build``. Nothing is measured, so no device is
held."""

from __future__ import annotations

import json
import time

from fusescope.core import sources
from fusescope.core.machine import toolchain
from fusescope.core.machine.archs import normal
from fusescope.core.schema import Parameter, complete

TITLE = "Build"


def _archs(names: list[str]) -> list[str]:
    archs = sorted(set(map(normal, names)))
    known = toolchain.known_archs(toolchain.detect())
    if known and (strange := [a for a in archs if a not in known]):
        raise ValueError(f"this nvcc does not support {', '.join(strange)}; it supports {', '.join(known)}")
    return archs


def _families(names: list[str]) -> list[str] | None:
    known = sources.families()
    if strange := sorted(set(names) - set(known)):
        raise ValueError(f"there is no kernel family {', '.join(strange)}; known: {', '.join(known)}")
    return sorted(set(names)) or None


PARAMETERS = (
    Parameter(
        "archs", "names", None, "such as sm_80; null: those of the GPUs present, []: none", further=_archs
    ),
    Parameter("clean", "bool", False, "forget what was built with this toolchain before"),
    Parameter("families", "names", None, "folders of cuda/; null: all", further=_families),
)


def validate(spec: dict) -> dict:
    """{"archs", "clean", "families"} as PARAMETERS describes; ValueError: rule, value, what is supported.
    Architectures must be known to this machine's nvcc."""
    return complete("a build", PARAMETERS, spec)


def name(spec: dict) -> str:
    of = f" of {', '.join(spec['families'])}" if spec.get("families") else ""
    return f"build{of}" + (f" for {', '.join(spec['archs'])}" if spec.get("archs") else "")


def device(spec: dict) -> None:
    """Compiling holds no device."""
    return None


def run(spec: dict, reporter) -> None:
    """Build with progress in objects, an ETA from what they took before and the pace so far, the log line by
    line, the report as artifacts/report.json.

    Raises BuildError, naming the first error, where anything failed: what did build is in the report and
    usable all the same.
    """
    from fusescope.core.errors import BuildError
    from fusescope.kernels.build import build, seconds_missing

    start, expected = time.monotonic(), 0.0

    def progress(done: int, total: int, what: str) -> None:
        left = (1 - done / total) * expected
        if done:
            pace = (time.monotonic() - start) / done * (total - done)
            left = pace if not expected else (1 - done / total) * left + done / total * pace
        reporter.progress(done, total, f"compiling {what}", left or None)

    def cancelled() -> bool:
        reporter.check()  # raises Cancelled, which ends the build as a true answer would
        return False

    reporter.progress(0, 1, "hashing the sources", None)
    if not spec["clean"] and not spec["families"]:
        archs = None if spec["archs"] is None else tuple(spec["archs"])
        expected = seconds_missing("cpu" if archs == () else "cuda", archs)
    report = build(
        spec["archs"],
        spec["clean"],
        log=reporter.log,
        cancelled=cancelled,
        progress=progress,
        families=tuple(spec["families"]) if spec["families"] else None,
    )
    reporter.artifact("report.json").write_text(json.dumps(report.to_json(), indent=1))
    for cause in report.causes:
        reporter.log(f"{cause['check']}: {cause['says']}\n  fix: {cause['fix']}")
    if not report.ok:
        first = report.failed[0] if report.failed else None
        where = (
            f"{first.family}/{first.variant} ({first.arch or first.device}): {first.error}"
            if first
            else "nothing was linked"
        )
        raise BuildError(
            f"{len(report.failed)} of {len(report.variants)} objects failed; {where}", report.causes
        )
    reporter.progress(
        len(report.variants), len(report.variants), "nothing to do" if report.reused else "built", 0.0
    )

"""Build the extension: the job behind the Build page and ``build``. Nothing is measured, so no device is
held."""

from __future__ import annotations

import json
import time

TITLE = "Build"


def validate(spec: dict) -> dict:
    """{"archs": list of sm_… or null (the GPUs present), "clean": bool}. ValueError or TypeError: rule,
    value, what is supported.

    Architectures are checked against what this machine's nvcc knows.
    """
    from fusescope.core import toolchain
    from fusescope.core.archs import normal

    unknown = set(spec) - {"archs", "clean"}
    if unknown:
        raise ValueError(f"a build takes archs and clean, not {', '.join(sorted(unknown))}")
    archs, clean = spec.get("archs"), spec.get("clean", False)
    if not isinstance(clean, bool):
        raise TypeError(f"clean is true or false, not {clean!r}")
    if archs is not None:
        if isinstance(archs, str) or not all(isinstance(a, str) for a in archs):
            raise TypeError(
                f"archs is a list of names such as sm_80, or null for the GPUs present, not {archs!r}"
            )
        archs = sorted({normal(a) for a in archs})
        known = toolchain.known_archs(toolchain.detect())
        if known and (strange := [a for a in archs if a not in known]):
            raise ValueError(f"this nvcc does not know {', '.join(strange)}; it knows {', '.join(known)}")
    return {"archs": archs, "clean": clean}


def device(spec: dict) -> None:
    """Compiling holds no device."""
    return None


def run(spec: dict, reporter) -> None:
    """Build with progress in objects and an ETA from their mean time, the log line by line, the report as
    artifacts/report.json.

    Raises BuildError, naming the first error, where anything failed: what did build is in the report and
    usable all the same.
    """
    from fusescope.core.errors import BuildError
    from fusescope.kernels.build import build

    start = time.monotonic()

    def progress(done: int, total: int, what: str) -> None:
        eta = (time.monotonic() - start) / done * (total - done) if done else None
        reporter.progress(done, total, f"{done} of {total} objects: {what}", eta)

    def cancelled() -> bool:
        reporter.check()  # raises Cancelled, which ends the build as a true answer would
        return False

    reporter.progress(0, 1, "hashing the sources", None)
    report = build(spec["archs"], spec["clean"], log=reporter.log, cancelled=cancelled, progress=progress)
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

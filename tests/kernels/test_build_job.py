"""Building as a job: specification, progress, log, artifacts, cancel."""

from __future__ import annotations

import json

import pytest

from fusescope.core.errors import BuildError, Cancelled
from fusescope.core.machine import toolchain
from fusescope.core.reporter import Collect
from fusescope.jobs.kinds import build as kind


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ({"arch": ["sm_80"]}, ValueError, "a build takes archs, clean, families, not arch"),
        ({"archs": "sm_80"}, ValueError, "archs must be a list of names"),
        ({"archs": [80]}, ValueError, "archs must be a list of names"),
        ({"archs": ["volta"]}, ValueError, "an architecture is written sm_"),
        ({"clean": "yes"}, ValueError, "clean must be true or false, not 'yes'"),
    ],
)
def test_bad_specifications(spec, error, message):
    with pytest.raises(error, match=message):
        kind.validate(spec)


def test_specifications_are_completed():
    default = {"archs": None, "clean": False, "families": None}
    assert kind.validate({}) == default
    assert kind.validate({"archs": ["sm_90", "sm_80"]}) == default | {"archs": ["sm_80", "sm_90a"]}
    assert kind.validate({"families": ["gemm", "add"]})["families"] == ["add", "gemm"]
    assert kind.device({}) is None
    if toolchain.detect().nvcc:
        with pytest.raises(ValueError, match="does not support sm_42; it supports sm_75"):
            kind.validate({"archs": ["sm_42"]})


@pytest.mark.slow
def test_progress_log_and_report(project, tmp_path):
    reporter = Collect(tmp_path / "artifacts")
    kind.run(kind.validate({"clean": True, "archs": []}), reporter)
    done = [(d, t) for d, t, _, _ in reporter.steps]
    assert done[0] == (0, 1) and (1, 2) in done and done[-1] == (2, 2)
    assert any((done, total) == (1, 2) and "add/" in text for done, total, text, _ in reporter.steps)
    assert any("linked libfusescope_cpu_add-" in line for line in reporter.lines)
    saved = json.loads((tmp_path / "artifacts" / "report.json").read_text())
    assert saved["ok"] and saved["compiled"] == 2


@pytest.mark.slow
def test_a_failure_names_the_first_error_and_keeps_the_report(project, tmp_path):
    project.edit(project.add / "cpu.cpp", "return nullptr;", "return nonsense;")
    reporter = Collect(tmp_path / "artifacts")
    with pytest.raises(BuildError, match=r"1 of 2 objects failed; add/cpu \(cpu\): .*nonsense"):
        kind.run(kind.validate({"archs": []}), reporter)
    assert not json.loads((tmp_path / "artifacts" / "report.json").read_text())["ok"]


def test_cancelling_is_let_through(project):
    reporter = Collect()
    reporter.cancelled = True
    project.edit(project.add / "cpu.cpp", "n > 16384", "n > 16385")
    with pytest.raises(Cancelled):
        kind.run(kind.validate({"archs": []}), reporter)

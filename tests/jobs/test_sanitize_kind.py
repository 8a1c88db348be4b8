"""The sanitizer job around a stand-in for compute-sanitizer: what it is started with, and how its report is
read."""

import json

import pytest

from fusescope.core.errors import Unsupported
from fusescope.core.reporter import Collect
from fusescope.jobs import submit
from fusescope.jobs.kinds import sanitize
from fusescope.jobs.profiled import one_case

SPEC = {
    "op": "add",
    "impl": "eager",
    "case": {"n": 256},
    "dtype": "float32",
    "device": "cpu",
    "tool": "memcheck",
}

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
TWO_ERRORS = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at add_kernel(const float *, float *, long)+0x90 in v1_one_element.cu:14
=========     by thread (31,0,0) in block (7,0,0)
=========     Address 0x7f6b5a000400 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x1234] in python
=========
========= Invalid __global__ read of size 4 bytes
=========     at add_kernel(const float *, float *, long)+0x90 in v1_one_element.cu:14
=========     by thread (30,0,0) in block (7,0,0)
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call.
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 3 errors
"""
RACES = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at softmax_kernel(float *)+0x3f0 in v2.cu:40
=========     and Read access at softmax_kernel(float *)+0x450 in v2.cu:44 [124 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def stand_in(tmp_path, report, code=0, runs=True):
    """A compute-sanitizer that writes a given report, after running what it wraps."""
    (tmp_path / "report").write_text(report)
    script = tmp_path / "compute-sanitizer"
    script.write_text(
        "#!/bin/sh\n"
        f'echo "$@" > {tmp_path}/arguments; env > {tmp_path}/environment\n'
        'while [ "$1" != --log-file ]; do shift; done; log=$2; shift 2\n'
        + ('"$@" || exit $?\n' if runs else "")
        + f"cp {tmp_path}/report $log\nexit {code}\n"
    )
    script.chmod(0o755)


@pytest.fixture
def reporter(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return Collect(tmp_path / "artifacts")


@pytest.mark.slow
def test_a_clean_call(reporter, tmp_path):
    stand_in(tmp_path, CLEAN)
    sanitize.run(SPEC, reporter)
    assert reporter.records == [] and reporter.steps[-1][2] == "memcheck: no error"
    arguments = (tmp_path / "arguments").read_text()
    assert arguments.startswith("--tool memcheck ") and "-m fusescope.jobs.profiled.one_case" in arguments
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING=1" in (tmp_path / "environment").read_text()
    assert json.loads((tmp_path / "artifacts/sanitizer.json").read_text())["errors"] == 0


def test_errors_become_a_record_with_the_first_one_and_where(reporter, tmp_path):
    stand_in(tmp_path, TWO_ERRORS, code=1, runs=False)
    sanitize.run(SPEC, reporter)
    (record,) = reporter.records
    assert record.status == "error" and record.case == {"n": 256}
    assert record.reason.startswith(
        "memcheck: 3 errors; first: Invalid __global__ read of size 4 bytes at add_kernel("
    )
    found = json.loads((tmp_path / "artifacts/sanitizer.json").read_text())
    assert [(f["what"][:27], f["times"]) for f in found["findings"]] == [
        ("Invalid __global__ read of ", 2),
        ("Program hit cudaErrorLaunch", 1),
    ]


def test_races_are_read_too(reporter, tmp_path):
    stand_in(tmp_path, RACES, code=1, runs=False)
    sanitize.run(SPEC | {"tool": "racecheck"}, reporter)
    assert reporter.records[0].reason.startswith(
        "racecheck: 1 errors; first: Error: Race reported between Write access at"
    )


@pytest.mark.parametrize(
    ("report", "says"),
    [("", "did not finish"), ("========= Error: No attachable process found\n", "No attachable process")],
)
def test_a_tool_that_fails_is_no_clean_bill(reporter, tmp_path, report, says):
    stand_in(tmp_path, report, code=1, runs=False)
    with pytest.raises(RuntimeError, match=says):
        sanitize.run(SPEC, reporter)
    stand_in(tmp_path, CLEAN, code=3, runs=False)  # no error found, but the program did not end well
    with pytest.raises(RuntimeError, match="exit code 3"):
        sanitize.run(SPEC, reporter)


def test_where_it_cannot_be_used_the_reason_is_said(home, tmp_path, monkeypatch):
    with pytest.raises(Unsupported, match="checks CUDA kernels; the device is cpu"):
        submit.submit("sanitize", SPEC)
    with pytest.raises(
        ValueError, match="tool must be memcheck, racecheck, initcheck or synccheck, not 'speedcheck'"
    ):
        submit.submit("sanitize", SPEC | {"tool": "speedcheck"})
    monkeypatch.setattr(sanitize, "find_sanitizer", lambda: None)
    monkeypatch.setattr(one_case, "validate", lambda spec, extra: spec | {"device": "cuda:0"})
    with pytest.raises(Unsupported, match="compute-sanitizer is neither on PATH nor in the CUDA toolkit"):
        submit.submit("sanitize", SPEC)


@pytest.mark.gpu
def test_memcheck_finds_nothing_in_a_peer_on_the_gpu(home):
    if sanitize.find_sanitizer() is None:
        pytest.skip("compute-sanitizer is not installed")
    run = submit.wait(submit.submit("sanitize", SPEC | {"device": "cuda:0"}), 300)
    assert run.status == "done" and run.progress.message == "memcheck: no error", run.reason

"""Nsight Compute and Nsight Systems around a case; played by scripts where there is no GPU."""

import os
import stat
import time

import pytest
from made_up import DATA

from fusescope.core.errors import Cancelled, Unsupported
from fusescope.core.reporter import Collect
from fusescope.jobs.kinds import ncu, nsys
from fusescope.jobs.profiled import outside_tool
from fusescope.store import profile

pytestmark = pytest.mark.slow


def test_a_missing_tool_is_named_with_its_package(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(outside_tool, "find", lambda tool: None)
    monkeypatch.setattr(
        "fusescope.jobs.profiled.one_case.validate",
        lambda spec, extra: {p.name: p.default for p in extra} | spec,
    )
    with pytest.raises(Unsupported, match="install nsight-compute"):
        ncu.validate({"device": "cuda:0"})
    with pytest.raises(Unsupported, match="install nsight-systems"):
        nsys.validate({"device": "cuda:0"})


NCU = """#!/bin/sh
echo "$@" >> "$FAKE_LOG"
case "$*" in
*--import*raw*) cat "$FAKE_DATA/raw.csv" ;;
*--import*details*) cat "$FAKE_DATA/details.csv" ;;
*) while [ "$1" != "--export" ]; do shift; done; touch "$2.ncu-rep"
   while [ "$1" != "-m" ]; do last="$1"; shift; done; "$last" "$@" ;;
esac
"""

NSYS = """#!/bin/sh
echo "$@" >> "$FAKE_LOG"
for a in "$@"; do case "$a" in --output=*) out="${a#--output=}" ;; esac; done
if [ "$1" = export ]; then cp "$FAKE_DATA/nsys.sqlite" "$out"; else
  touch "$out"; while [ "$1" != "-m" ]; do last="$1"; shift; done; "$last" "$@"; fi
"""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """ncu and nsys as scripts: they run what they are given and hand out prepared answers. The folder of
    those."""
    given = tmp_path / "given"
    given.mkdir()
    for name, text in (("ncu", NCU), ("nsys", NSYS)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755 | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "asked"))
    monkeypatch.setenv("FAKE_DATA", str(given))
    return given


CASE = {
    "op": "add",
    "impl": "eager",
    "case": {"n": 64},
    "dtype": "float32",
    "device": "cpu",
    "calls": 1,
    "warmup": 0,
}


def test_ncu_wraps_the_case_and_its_two_pages_are_read(tools, tmp_path):
    from test_ncu import LONG, WIDE, long

    units = ",".join(['""'] * 11 + ['"%"'])
    row = '"0","9","p","h","k<1>(int)","1","7","(128, 1, 1)","(10, 1, 1)","0","9.0","50"'
    (tools / "raw.csv").write_text(
        f'{WIDE}"sm__warps_active.avg.pct_of_peak_sustained_active"\n{units}\n{row}\n'
    )
    (tools / "details.csv").write_text(
        "==PROF== output\n" + LONG + long("GPU Speed Of Light Throughput", "Duration", "us", "5")
    )
    reporter = Collect(tmp_path / "artifacts")
    ncu.run(CASE | {"metrics": "standard"}, reporter)
    found = profile.rows(tmp_path, "ncu_kernels")[0]
    assert found["measured_occupancy"] == 0.5 and found["duration_ns"] == 5000
    asked = (tmp_path / "asked").read_text()
    assert (
        "--clock-control none" in asked
        and "--print-units base" in asked
        and "--profile-from-start off" in asked
    )
    assert (
        "fusescope.jobs.profiled.profiled_call" in asked
        and (tmp_path / "artifacts" / "report.ncu-rep").exists()
    )
    assert (tmp_path / "artifacts" / "telemetry.parquet").exists()


@pytest.mark.slow
def test_without_pyarrow_what_the_tools_wrote_is_kept(tools, tmp_path, monkeypatch):
    from test_ncu import LONG, WIDE

    (tools / "raw.csv").write_text(f'{WIDE}"sm__warps_active.avg.pct_of_peak_sustained_active"\n')
    (tools / "details.csv").write_text(LONG)

    def missing(*given, **more):
        raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")

    monkeypatch.setattr("fusescope.profiling.nsight.ncu.load", missing)
    reporter = Collect(tmp_path / "artifacts")
    ncu.run(CASE | {"metrics": "light"}, reporter)
    assert (tmp_path / "artifacts" / "ncu.csv").is_file() and any(
        "pip install pyarrow" in line for line in reporter.lines
    )
    assert reporter.steps[-1][2] == "the report, without its tables"


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no real files at {DATA}")
def test_nsys_wraps_the_case_and_its_export_is_read(tools, tmp_path):
    (tools / "nsys.sqlite").write_bytes((DATA / "nsight" / "nsys_power_iteration.sqlite").read_bytes())
    reporter = Collect(tmp_path / "artifacts")
    nsys.run(CASE, reporter)
    assert (
        profile.summary(tmp_path)["rows"]["kernels"] == 3689
        and "--capture-range=cudaProfilerApi" in (tmp_path / "asked").read_text()
    )


def test_a_tool_that_may_not_count_says_what_to_do(tmp_path, monkeypatch):
    tool = tmp_path / "ncu"
    tool.write_text(
        "#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'\nexit 1\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(RuntimeError, match="NVreg_RestrictProfilingToAdminUsers=0"):
        ncu.run(CASE | {"metrics": "light"}, Collect(tmp_path / "artifacts"))


def test_a_cancelled_tool_leaves_nothing_running(tmp_path):
    class Soon(Collect):
        def check(self) -> None:
            if (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text().strip():
                raise Cancelled

    with pytest.raises(Cancelled):
        outside_tool.run(
            ["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; wait"], Soon(tmp_path / "a"), "waiting"
        )
    pid = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 20
    while (
        time.monotonic() < end
        and os.path.exists(f"/proc/{pid}")
        and " Z " not in open(f"/proc/{pid}/stat").read()
    ):
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{pid}") or " Z " in open(f"/proc/{pid}/stat").read()

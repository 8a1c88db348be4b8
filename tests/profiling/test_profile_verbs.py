"""import and profile from the command line and as jobs; outside tools played by scripts where there is no
GPU."""

import gzip
import importlib
import importlib.util
import json
import os
import stat
import time

import pytest
import synthetic_trace
from made_up import DATA, kernel, launch, op, trace, x

from fusescope.cli import main
from fusescope.core.errors import Cancelled, Unsupported
from fusescope.core.paths import ROOT
from fusescope.core.reporter import Collect
from fusescope.jobs import submit
from fusescope.jobs.kinds import ncu, nsys
from fusescope.jobs.profiled import outside_tool
from fusescope.store import folder, library, profile

pytestmark = pytest.mark.slow

import_kind = importlib.import_module("fusescope.jobs.kinds.import")


@pytest.fixture
def call(capsys):
    """call(words…) -> (exit code, standard output, standard error)."""

    def run(*words):
        capsys.readouterr()
        code = main([str(w) for w in words])
        got = capsys.readouterr()
        return code, got.out, got.err

    return run


def valid(name: str, data) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    from referencing import Registry, Resource

    known = {
        p.name: json.loads(p.read_text()) for p in (ROOT / "backend" / "fusescope" / "schemas").glob("*.json")
    }
    registry = Registry().with_resources([(name, Resource.from_contents(c)) for name, c in known.items()])
    jsonschema.Draft202012Validator(known[name], registry=registry).validate(data)


def example(path, scale=1.0):
    events = [
        x("user_annotation", "ProfilerStep#1", 0, 90),
        op("aten::mm", 1, 20, 1),
        launch(1, 5, external=1),
    ]
    events += [
        kernel(1, 10, 8 * scale, "gemm<64>(float*)", external=1),
        op("aten::add", 30, 5, 2),
        launch(2, 31, external=2),
    ]
    return trace(path, [*events, kernel(2, 40, 2, "add(float*)", external=2)])


def test_files_become_runs_that_can_be_compared(home, call, tmp_path):
    files = [example(tmp_path / "a.json"), example(tmp_path / "b.json.gz", 2.0)]
    code, out, err = call("import", *files, "--json")
    assert code == 0, err
    data = json.loads(out)
    valid("import.json", data)
    runs = [f["run"] for f in data["imported"]]
    assert [f["summary"]["rows"]["kernels"] for f in data["imported"]] == [2, 2]
    path = library.find(runs[0])
    run = folder.read(path)
    assert (run.kind, run.title, run.device_name) == ("import", "a.json", "NVIDIA H200")
    packed = json.loads(gzip.decompress((path / "artifacts" / "trace.json.gz").read_bytes()))
    assert packed == json.loads(files[0].read_text())
    assert profile.table(path, "kernels", ["name", "dur_ns"]).dur_ns.tolist() == [8000, 2000]

    code, out, _ = call("profile", "diff", *runs, "--json")
    assert code == 0
    valid("profile-diff.json", json.loads(out))
    assert [(r["name"], r["state"]) for r in json.loads(out)["rows"]] == [
        ("gemm<64>(float*)", "slower"),
        ("add(float*)", "same"),
    ]
    code, out, _ = call("profile", "diff", *runs, "--by", "operator")
    assert code == 0 and "aten::mm" in out and "2.00×" in out
    bundle = tmp_path / "run.fsrun.tar.gz"
    assert call("runs", "export", runs[0], "--to", bundle)[0] == 0
    code, out, _ = call("import", bundle)
    assert code == 0 and "done" in out
    assert (
        call("import", files[0], "--captured", runs[1])[1].count(
            "kernels linked: 100.0% to a launch, 100.0% to an operator"
        )
        == 1
    )


def test_names_of_strangers_do_not_steer_the_terminal(home, call, tmp_path):
    name = "\x1b[31m<img src=x onerror=alert(1)>\a"
    a, b = (trace(tmp_path / f"{n}.json", [kernel(1, 1, 1 + n, name)]) for n in range(2))
    runs = [json.loads(call("import", f, "--json")[1])["imported"][0]["run"] for f in (a, b)]
    code, out, _ = call("profile", "diff", *runs)
    assert code == 0 and "<img src=x onerror=alert(1)>" in out and "\x1b" not in out and "\a" not in out
    assert json.loads(call("profile", "diff", *runs, "--json")[1])["rows"][0]["name"] == name


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no real files at {DATA}")
def test_nsight_files_by_the_same_door(home, call):
    files = [
        DATA / "nsight" / name
        for name in ("nsys_power_iteration.sqlite", "ncu_raw_h200.csv", "ncu_details_h200.csv.gz")
    ]
    code, out, err = call("import", *files, "--json")
    assert code == 0, err
    valid("import.json", json.loads(out))
    assert [f["form"] for f in json.loads(out)["imported"]] == ["nsys", "ncu", "ncu"]


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        (b"", "a.json", "a.json is empty"),
        (b"\x1f\x8b\x08", "a.json.gz", "truncated"),
        (b"<html>not found</html>", "a.json", "is none of the profiles that can be read"),
        (b"xx", "a.nsys-rep", "nsys export --type sqlite"),
        (None, "missing.json", "there is no file"),
    ],
)
def test_what_cannot_be_read_is_refused_before_a_run_is_made(content, name, says, home, call, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    code, out, err = call("import", tmp_path / name)
    assert code == 2 and out == "" and err.startswith("error: ") and says in err and err.count("\n") == 1
    assert not list(home.glob("*-import-*"))


def test_a_broken_file_is_a_failed_run_with_its_reason(home, call, tmp_path):
    (tmp_path / "cut.json").write_text('{"traceEvents": [{"ph": "X", "na')
    code, out, _ = call("import", tmp_path / "cut.json", "--json")
    assert code == 1
    found = json.loads(out)["imported"][0]
    valid("import.json", json.loads(out))
    assert (
        found["status"] == "failed"
        and "truncated or no valid JSON" in found["reason"]
        and "Traceback" not in found["reason"]
    )


@pytest.mark.parametrize(
    ("spec", "error", "says"),
    [
        ({"file": ["x"]}, ValueError, "file must be a text"),
        ({"keep": 1}, ValueError, "keep must be true or false"),
        ({"speed": 1}, ValueError, "an import takes file, keep, captured, discard, form, not speed"),
        ({"captured": 5}, ValueError, "captured must be a text"),
        ({"captured": "20200101-000000"}, ValueError, "20200101-000000"),
    ],
)
def test_import_specs_are_checked(spec, error, says, home, tmp_path):
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(error, match=says):
        import_kind.validate({"file": str(tmp_path / "a.json")} | spec)


def test_an_import_is_cancelled_while_it_reads(home, tmp_path):
    reporter = Collect(tmp_path / "artifacts")
    synthetic_trace.write(tmp_path / "t.json", 30_000)
    reporter.cancelled = True
    with pytest.raises(Cancelled):
        import_kind.run(import_kind.validate({"file": str(tmp_path / "t.json")}), reporter)


def test_a_file_is_left_where_it_is_if_asked(tmp_path):
    reporter = Collect(tmp_path / "artifacts")
    import_kind.run(
        import_kind.validate({"file": str(example(tmp_path / "a.json")), "keep": False}), reporter
    )
    assert not (tmp_path / "artifacts" / "trace.json.gz").exists() and any(
        "stays at" in line for line in reporter.lines
    )
    assert reporter.facts["device_name"] == "NVIDIA H200" and reporter.steps[-1][:2] == (100, 100)


def test_profile_with_torch_and_memory(home, call):
    code, out, err = call(
        "profile",
        "add",
        "--impl",
        "eager",
        "--case",
        "n=4096",
        "--device",
        "cpu",
        "--memory",
        "--active",
        "3",
        "--json",
    )
    assert code == 0, err
    data = json.loads(out)
    valid("profile.json", data)
    found = data["profiles"][0]
    assert next(o for o in found["operators"] if o["name"] == "aten::add")["calls"] == 3
    assert found["verdict"]["kind"] == "cannot tell" and found["telemetry"]["source"] == "process"
    assert found["memory"]["rss_peak_bytes"] > 0
    tables = profile.names(library.find(found["run"]))
    assert {"telemetry", "operators", "memory", "steps", "kernel_summary"} <= set(tables)
    assert len(profile.rows(library.find(found["run"]), "steps")) == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--tool", "ncu"), "Nsight Compute profiles CUDA kernels; the device is cpu"),
        (("--tool", "nsys"), "Nsight Systems profiles CUDA kernels; the device is cpu"),
        (("--tool", "sanitizer"), "compute-sanitizer checks CUDA kernels; the device is cpu"),
        (("--tool", "ncu", "--memory"), "--memory goes with --tool torch"),
        (("--metrics", "full"), "--metrics goes with --tool ncu"),
        (("--tool", "ncu", "--metrics", "everything"), "metrics must be light"),
        (("--tool", "perf"), "invalid choice"),
        (("--impl", "nothing"), "nothing"),
        (("--active", "0"), "active must be an integer"),
    ],
)
def test_profile_refuses_in_one_sentence(words, says, home, call):
    code, out, err = call("profile", "add", "--device", "cpu", *words)
    assert code == 2 and out == "" and says in err and err.count("\n") == 1, err


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


def test_a_profile_of_a_newer_version_is_said(home, tmp_path):
    from fusescope.core.errors import RunError

    (tmp_path / "artifacts").mkdir()
    assert profile.summary(tmp_path) is None
    (tmp_path / "artifacts" / "summary.json").write_text('{"schema": 99}')
    with pytest.raises(RunError, match="newer version"):
        profile.summary(tmp_path)
    (tmp_path / "artifacts" / "kernels.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(RunError, match="cannot be read"):
        profile.table(tmp_path, "kernels")
    with pytest.raises(RunError, match="has no table steps; it has kernels"):
        profile.rows(tmp_path, "steps")


def test_without_pyarrow_the_trace_and_its_sums_are_kept(tmp_path, monkeypatch):
    """A GPU box may have torch alone: what was collected there is shown from kernels.json, and an import
    names what it needs."""
    from fusescope.cli import profile_text

    (tmp_path / "artifacts").mkdir()
    row = {
        "name": "k",
        "calls": 2,
        "total_us": 3.5,
        "mean_us": 1.75,
        "min_us": 1.5,
        "max_us": 2.0,
        "grid": [4, 1, 1],
        "block": None,
    }
    (tmp_path / "artifacts" / "kernels.json").write_text(
        json.dumps({"kernels": [row | {"registers": 40, "shared_bytes": 0}]})
    )
    found = profile_text.found(tmp_path)
    assert (
        found["kernels"][0]["total_ns"] == 3500
        and found["kernels"][0]["grid_x"] == 4
        and "3.50" in profile_text.words(found)
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unsupported, match="pip install pyarrow"):
        import_kind.validate({"file": str(example(tmp_path / "a.json"))})


@pytest.mark.gpu
@pytest.mark.parametrize("tool", ["torch", "ncu", "nsys"])
def test_profiling_on_a_gpu(tool, home, call):
    if tool != "torch" and outside_tool.find(tool) is None:
        pytest.skip(f"{tool} is not installed")
    if tool != "torch":
        pytest.importorskip("pyarrow")  # without it the report is kept and its tables are made elsewhere
    code, out, err = call(
        "profile", "add", "--case", "n=65536", "--device", "cuda:0", "--tool", tool, "--json"
    )
    data = json.loads(out)
    if code and "NVreg_RestrictProfilingToAdminUsers" in str(data["profiles"][0]["reason"]):
        pytest.skip("this user may not read performance counters")
    assert code == 0, err
    valid("profile.json", data)
    found = data["profiles"][0]
    assert found["ncu"] if tool == "ncu" else found["kernels"]
    assert found["telemetry"]["source"] == "nvml"


def test_submitting_an_import_is_a_job_like_any_other(home, tmp_path):
    run = submit.wait(submit.submit("import", {"file": str(example(tmp_path / "a.json"))}, "theirs"), 120)
    assert run.status == "done", run.reason
    assert run.progress.message == "2 kernels, 2 operators, 2 launches, 1 ranges, 1 gaps from a.json"

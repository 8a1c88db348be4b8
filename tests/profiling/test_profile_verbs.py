"""profile from the command line, and what is shown of a profile whose tables are missing or newer."""

import importlib
import importlib.util
import json

import pytest
from verb_tools import example, valid

from fusescope.core.errors import Unsupported
from fusescope.jobs.profiled import outside_tool
from fusescope.store import library, profile

pytestmark = pytest.mark.slow

import_kind = importlib.import_module("fusescope.jobs.kinds.import")


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
    assert found["verdict"]["kind"] == "inconclusive" and found["telemetry"]["source"] == "process"
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
        (("--active", "0"), "argument --active: must be an integer from 1"),
    ],
)
def test_profile_refuses_in_one_sentence(words, says, home, call):
    code, out, err = call("profile", "add", "--device", "cpu", *words)
    assert code == 2 and out == "" and says in err and err.count("\n") == 1, err


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
    from fusescope.cli.tables import profile_text

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

"""``bench`` and ``runs`` end to end: real jobs, their JSON, exit codes, and the run library."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from fusescope.cli import main
from fusescope.core.paths import ROOT
from fusescope.jobs import submit
from fusescope.store import folder, library

pytestmark = pytest.mark.slow

QUICK = ["--budget", "0.3", "--cache", "warm", "--device", "cpu"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder, and the runs, of this module alone; kernels and their build are everybody's."""
    base = tmp_path_factory.mktemp("bench")
    (base / "profiles").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUSESCOPE_PROFILES", str(base / "profiles"))
        yield base


@pytest.fixture(scope="module")
def first(place):
    """A finished run: two cases, our kernel against torch."""
    import contextlib
    import io
    import json

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(
            ["bench", "add", "--n", "1000,3000", "--impl", "cpu,eager", "--title", "first", *QUICK, "--json"]
        )
    assert code == 0, err.getvalue()
    return json.loads(out.getvalue()), err.getvalue()


def test_json_has_the_documented_form(first, valid):
    data, _ = first
    valid("bench", data)
    assert data["baseline"] == "eager"
    assert {(r["impl"], r["case"]["n"]) for r in data["records"]} == {
        (i, n) for i in ("cpu", "eager") for n in (1000, 3000)
    }
    for r in data["records"]:
        assert r["status"] == "ok" and r["accuracy"]["max_abs"] < 1e-6
        assert (
            r["time_ms"]["first"] > 0 and r["time_ms"]["eager"]["n"] >= 10 and r["time_ms"]["graph"] is None
        )
        assert (
            r["speedup"]["of"] == "eager"
            and r["speedup"]["low"] <= r["speedup"]["median"] <= r["speedup"]["high"]
        )
        assert bool(r["source_hash"]) == (r["impl"] == "cpu")


def test_progress_goes_to_standard_error(first):
    data, err = first
    assert f"{data['run']}: 2 implementations on 2 cases" in err
    cases = [int(n) for n in re.findall(r"^.*case (\d) of 2: .* · ", err, re.MULTILINE)]
    assert cases == sorted(cases) and set(cases) == {1, 2}
    assert re.search(r" · about .* left$", err, re.MULTILINE)


def test_the_run_is_a_folder_like_any_other(first, place):
    run = folder.read(library.find(first[0]["run"]))
    assert (run.status, run.kind, run.title) == ("done", "bench", "first")
    assert len(folder.records(library.find(run.id))) == 4 and folder.samples(library.find(run.id))


def test_a_wrong_kernel_fails_the_command_and_has_no_latency(call, valid, place, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def nearly(a, b):\n    return a + b * 1.001\n\n"
        "def right(a, b):\n    return a.add(b)\n\n"
        "def raises(a, b):\n    raise KeyError('no')\n"
    )
    impls = f"{file}:nearly,{file}:right,{file}:raises"
    got = call("bench", "add", "--n", "1000", "--impl", impls, *QUICK, "--json")
    assert got.code == 1
    valid("bench", got.data)
    by = {r["impl"].rpartition(":")[2]: r for r in got.data["records"]}
    assert {name: r["status"] for name, r in by.items()} == {
        "nearly": "wrong",
        "right": "ok",
        "raises": "error",
        "eager": "ok",
    }
    assert by["nearly"]["time_ms"] is None and by["nearly"]["accuracy"]["max_abs"] > 1e-4
    assert "KeyError" in by["raises"]["reason"]
    assert "nearly wrong: " in got.err
    human = call("runs", "show", got.data["run"])
    assert "mine.py:nearly" in human.out and "wrong" in human.out and "baseline" in human.out


@pytest.fixture
def no_job_stays(place):
    """A test that fails leaves no job, which would hold the lock of the CPU for minutes."""
    yield
    for job in submit.queue():
        submit.cancel(job["id"])


def test_interrupting_keeps_what_is_measured_and_it_can_be_resumed(place, call, valid, no_job_stays):
    """Ctrl-C in a real terminal process: the job is cancelled, its run says so, exit code 1; resumed, it goes
    on from there."""
    words = [
        "bench",
        "add",
        "--n",
        ",".join(str(n) for n in range(1000, 1100)),
        "--impl",
        "cpu",
        "--device",
        "cpu",
        "--budget",
        "0.3",
        "--cache",
        "warm",
    ]
    command = [sys.executable, "-m", "fusescope", *words]
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ.copy(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    run_id = process.stderr.readline().partition(":")[0]
    end = time.monotonic() + 60
    while time.monotonic() < end and not folder.records(library.find(run_id)):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and f"{run_id}: {folder.CANCELLING}" in err
    assert f"error: {run_id} cancelled" in err and "Traceback" not in err
    run = folder.read(library.find(run_id))
    assert run.status == "cancelled"
    measured = folder.records(library.find(run_id))
    assert 0 < len(measured) < 200 and run_id in out
    resumed = subprocess.Popen(
        [*command[:3], "runs", "resume", run_id], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while time.monotonic() < end and len(folder.records(library.find(run_id))) <= len(measured):
        time.sleep(0.1)
    stopped = call("runs", "cancel", run_id, "--json")
    valid("runs-cancel", stopped.data)
    assert stopped.code == 0 and stopped.data["status"] == "cancelled"
    resumed.communicate(timeout=60)
    assert resumed.returncode == 1
    keys = [(r.case_key, r.impl) for r in folder.records(library.find(run_id))]
    assert len(keys) == len(set(keys)) > len(measured), "what had a record is not measured again"
    assert call("runs", "cancel", run_id).code == 2


def test_runs_list_and_show(first, call, valid):
    listed = call("runs", "list", "--text", "first", "--json")
    assert listed.code == 0
    valid("runs-list", listed.data)
    assert [r["id"] for r in listed.data["runs"]] == [first[0]["run"]] and listed.data["total"] == 1
    assert first[0]["run"] in call("runs", "list").out
    assert call("runs", "list", "--op", "gemm").out == "no run matches\n"
    assert call("runs", "list", "--op", "gemm", "--offset", "9").out == "no run matches\n"
    past = call("runs", "list", "--text", "first", "--offset", "9")
    assert past.code == 0 and past.out == "nothing at --offset 9: 1 match\n"
    shown = call("runs", "show", first[0]["run"], "--json")
    valid("runs-show", shown.data)
    assert shown.data["records"] == first[0]["records"] and shown.data["run"]["environment"]["device_name"]
    assert call("runs", "show", first[0]["run"][:-2], "--json").data == shown.data, "a beginning will do"


def test_runs_tag(first, call, valid):
    run = first[0]["run"]
    valid("runs-tag", call("runs", "tag", run, "--add", "good", "old", "--notes", "kept", "--json").data)
    assert call("runs", "tag", run, "--remove", "old", "--json").data["tags"] == ["good"]
    assert [r["id"] for r in call("runs", "list", "--tag", "good", "--json").data["runs"]] == [run]


def test_runs_compare(first, place, call, valid):
    run = first[0]["run"]
    words = ("runs", "compare", run, "--by", "implementation", "--columns", "eager", "cpu")
    got = call(*words, "--json")
    valid("runs-compare", got.data)
    assert got.data["columns"] == ["eager", "cpu"] and got.data["comparable"] == []
    paired = {r["case"]["n"]: r["speedup"] for r in first[0]["records"] if r["impl"] == "cpu"}
    for row in got.data["rows"]:
        assert row["cells"][1]["ratio"] == paired[row["case"]["n"]]["median"]
    assert "cpu against eager: " in call(*words).out
    assert call("runs", "compare", run).code == 2, "one run has nothing to be compared with"
    copy = place / "profiles" / (run[:-6] + "abcdef")
    shutil.copytree(place / "profiles" / run, copy)
    data = json.loads((copy / "run.json").read_text()) | {"id": copy.name}
    (copy / "run.json").write_text(json.dumps(data))
    got = call("runs", "compare", run, copy.name, "--json")
    valid("runs-compare", got.data)
    assert got.data["comparable"][0]["yes"] and got.data["comparable"][0]["same"] == ["cpu", "eager"]
    assert "May B be compared with A? Yes" in call("runs", "compare", run, copy.name).out
    shutil.rmtree(copy)


def test_runs_report_is_one_page(first, call, valid, tmp_path):
    run = first[0]["run"]
    got = call("runs", "report", run, "--to", tmp_path, "--json")
    valid("runs-report", got.data)
    page = (tmp_path / f"{run}.html").read_text()
    assert "<script>" in page and "first" in page and "fusescope bench add" in page


def test_runs_travel_as_one_file(first, call, valid, tmp_path):
    run = first[0]["run"]
    made = call("runs", "export", run, "--to", tmp_path, "--json")
    valid("runs-export", made.data)
    gone = call("runs", "delete", run, "--json")
    valid("runs-delete", gone.data)
    assert gone.data == {"deleted": [run]} and call("runs", "show", run).code == 2
    back = call("runs", "import", made.data["file"], "--json")
    valid("runs-import", back.data)
    assert (
        call("runs", "show", back.data["imported"][0]["run"], "--json").data["records"] == first[0]["records"]
    )


def test_bad_arguments_of_runs(refused, profiles):
    assert "there is no run nothing" in refused("runs", "show", "nothing")
    assert "is not a run id" in refused("runs", "show", "../x")
    assert "required: ACTION" in refused("runs")
    assert "invalid choice: 'frob'" in refused("runs", "frob")
    assert "--limit: must be an integer from 1 to 2,147,483,647, not 0" in refused(
        "runs", "list", "--limit", "0"
    )
    assert "there is no run nothing" in refused("runs", "resume", "nothing")
    assert "there is no file nowhere.tar.gz" in refused("runs", "import", "nowhere.tar.gz")


def test_an_empty_library(call, valid, profiles):
    got = call("runs", "list", "--json")
    assert got.code == 0
    valid("runs-list", got.data)
    assert got.data["total"] == 0


def test_a_torn_run_is_a_sentence(call, profiles):
    broken = profiles / "20260101-000000-bench-abcdef"
    broken.mkdir()
    (broken / "run.json").write_text('{"schema": 1, "id": "2026')
    got = call("runs", "show", broken.name)
    assert got.code == 1 and got.err.startswith("error: ") and got.err.count("\n") == 1
    assert broken.name in call("runs", "list").out

"""import from the command line and as a job: files become runs, and what cannot be read is refused in one
sentence."""

import gzip
import importlib
import json

import pytest
import synthetic_trace
from made_up import DATA, kernel, trace
from verb_tools import example, valid

from fusescope.core.errors import Cancelled
from fusescope.core.reporter import Collect
from fusescope.jobs import submit
from fusescope.store import folder, library, profile

pytestmark = pytest.mark.slow

import_kind = importlib.import_module("fusescope.jobs.kinds.import")


@pytest.mark.long
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
    assert code == 0 and "aten::mm" in out and "2.00× slower" in out and "step on the device" in out
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
        ({"speed": 1}, ValueError, "an import takes file, files, keep, captured, discard, form, not speed"),
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


@pytest.mark.parametrize("text", ["[]", json.dumps([kernel(1, 10, 8, "gemm<64>(float*)")])])
def test_the_device_of_an_import_is_the_files_or_not_named(text, home, tmp_path):
    """While a file was read, and for good where that failed, it was the CPU of the machine it was read on."""
    (tmp_path / "a.json").write_text(text)
    run = submit.wait(submit.submit("import", {"file": str(tmp_path / "a.json")}, "theirs"), 120)
    read = run.status == "done"
    assert run.device_name == ("device not named in the file" if read else "unknown device"), run.reason


def test_submitting_an_import_is_a_job_like_any_other(home, tmp_path):
    run = submit.wait(submit.submit("import", {"file": str(example(tmp_path / "a.json"))}, "theirs"), 120)
    assert run.status == "done", run.reason
    assert run.progress.message == "2 kernels, 2 operators, 2 launches, 1 ranges, 1 gaps from a.json"


@pytest.mark.parametrize(
    "cut, says", [(slice(None, 12), "ends too early"), (slice(2, None), "none of the profiles")]
)
def test_a_compressed_file_that_lost_a_part_of_itself(tmp_path, cut, says):
    from fusescope.profiling import forms

    file = tmp_path / "trace.json.gz"
    file.write_bytes(gzip.compress(b'{"traceEvents": []}')[cut])
    with pytest.raises(ValueError, match=f"trace.json.gz .*{says}"):
        forms.detect(file)

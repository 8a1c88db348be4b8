"""Parts of a sweep that several GPUs measured: one run that holds each scheme once and says where it was
measured."""

import shutil

import pytest

from fusescope.core.records import Record, Time, Times
from fusescope.jobs.kinds import traverse as kind
from fusescope.search import sessions
from fusescope.search.sweeps import exhaustive, merge
from fusescope.store import folder

SPEC = {"batch": 1, "seq": 16, "heads": 2, "head_dim": 32, "dtype": "float32", "compiler": "none"}
CODES = exhaustive.codes(None, 10, 0)


def part(start, stop, unfused, device="GPU-0", fails=(), **changes):
    """A run that measured these of the ten schemes, in its device's own time of the unfused layer."""
    spec = kind.validate(SPEC | {"limit": 10, "part": [start, stop]} | changes)
    writer = folder.Writer(folder.create("traverse", spec))
    writer.state("running")
    writer.environment(device_name="NVIDIA H200", device_uuid=device, git_commit="abc")
    case = {k: spec[k] for k in ("batch", "seq", "heads", "head_dim", "ffn", "mask", "compiler")}
    for name, ms in [("unfused", unfused), *((c, 0.5 * unfused) for c in CODES[start:stop])]:
        if name in fails:
            writer.record(Record("layer", name, case, "float32", "cpu", "error", reason="made up"))
            continue
        record = Record(
            "layer", name, case, "float32", "cpu", "ok", time_ms=Times(eager=Time(ms, ms, ms, 10, True))
        )
        writer.record(record)
        writer.samples(record.case_key, name, "eager", [ms] * 3)
    writer.state("done")
    writer.close()
    return writer.path


def test_parts_are_one_run_that_says_where_each_scheme_was_measured(profiles):
    parts = [part(0, 4, 1.0), part(4, 7, 1.2, "GPU-1", fails=CODES[4]), part(7, 10, 1.1, "GPU-2")]
    path = merge.merge(parts, "Ten")
    run, records = folder.read(path), folder.records(path)
    assert (
        run.status == "done"
        and run.title == "Ten"
        and run.spec["part"] is None
        and run.device_name == "NVIDIA H200"
    )
    assert run.environment["device_uuid"] is None, "it is of three"
    by_code = {r.impl: r for r in records}
    assert len(by_code) == len(records) == 11 and by_code[CODES[4]].status == "error"
    where = {c: by_code[c].extra["sitting"] for c in CODES}
    assert [where[c] for c in CODES] == [parts[0].name] * 4 + [parts[1].name] * 3 + [parts[2].name] * 3
    assert by_code["unfused"].time_ms.eager.median == 1.1, "the median of the sessions"
    said = run.environment["sittings"]
    assert [(s["device_uuid"], s["schemes"], s["baselines_ms"]["unfused"]) for s in said] == [
        ("GPU-0", 4, 1.0),
        ("GPU-1", 3, 1.2),
        ("GPU-2", 3, 1.1),
    ]
    samples = folder.samples(path)
    assert {s["impl"]: s["ms"][0] for s in samples} == {
        r.impl: r.time_ms.eager.median for r in records if r.status == "ok"
    }
    assert len(samples) == 10 and sessions.records(path.name) == records


def test_what_is_left_is_for_another_session(profiles):
    path = merge.merge([part(0, 4, 1.0), part(5, 10, 1.0)])
    run = folder.read(path)
    assert run.status == "interrupted" and "1 of 10 schemes" in run.reason
    rest = part(4, 5, 1.0, after=path.name)
    again = merge.merge([rest])
    assert folder.read(again).status == "done", "with what it goes on after, all are there"
    assert len(sessions.records(again.name)) == 11


def test_what_found_no_memory_is_tried_again(profiles):
    """A scheme that failed otherwise has its record; the merged run keeps the one that is right."""
    first = part(0, 10, 1.0, fails=CODES[:2])
    lines = (first / "results.jsonl").read_text().splitlines(keepends=True)
    failed = next(i for i, line in enumerate(lines) if CODES[1] in line)
    lines[failed] = lines[failed].replace('"error"', '"oom"')
    (first / "results.jsonl").write_text("".join(lines))
    assert sessions.earlier(first.name, "NVIDIA H200") == {*CODES, "unfused"} - {CODES[1]}
    assert folder.read(merge.merge([first])).reason.startswith("1 of 10 schemes")
    path = merge.merge([first, part(1, 2, 1.0, after=first.name)])
    assert folder.read(path).status == "done"
    assert {r.impl: r.status for r in folder.records(path)}[CODES[1]] == "ok"


def test_a_part_that_failed_before_its_first_record_harms_nothing(profiles):
    empty = folder.create("traverse", kind.validate(SPEC | {"limit": 10, "part": [0, 4]}))
    path = merge.merge([empty, part(4, 10, 1.0)])
    assert [s["schemes"] for s in folder.read(path).environment["sittings"]] == [6]
    with pytest.raises(ValueError, match="nothing to merge"):
        merge.merge([empty])


def test_only_runs_of_one_setting_are_merged(profiles):
    with pytest.raises(ValueError, match="not sweeps of one setting"):
        merge.merge([part(0, 4, 1.0), part(4, 10, 1.0, seq=32)])


def test_what_was_merged_is_merged_again(profiles):
    """A first session of fewer schemes, a second of two parts, a third: one run that goes on after
    nothing."""
    few = part(0, 2, 1.0, limit=2)
    first = merge.merge([few, *(part(a, b, 1.0, after=few.name) for a, b in ((2, 4), (4, 6)))])
    rest = part(6, 10, 1.3, "GPU-3", after=first.name)
    path = merge.merge([first, rest], "Whole")
    run = folder.read(path)
    assert run.status == "done" and run.spec["after"] is None and run.spec["limit"] == 10
    assert [s["schemes"] for s in run.environment["sittings"]] == [2, 2, 2, 4]
    where = {r.impl: r.extra["sitting"] for r in folder.records(path)}
    assert folder.read(merge.merge([rest])).spec["after"] == first.name
    shutil.rmtree(first)
    assert folder.read(merge.merge([rest])).spec["after"] is None
    assert set(where) == {*CODES, "unfused"} and where[CODES[0]] == few.name and where[CODES[9]] == rest.name


@pytest.mark.parametrize("bad", ["0:4", [3], [4, 4], [-1, 4], [0, 4.0], [True, 4]])
def test_a_part_is_two_positions(bad):
    with pytest.raises(ValueError, match="part must be two positions"):
        kind.validate(SPEC | {"part": bad})


def test_sessions_at_one_time_are_of_one_machine():
    case = {"batch": 1, "seq": 16, "heads": 2, "head_dim": 32, "ffn": 256, "mask": "full", "compiler": "none"}

    def record(code, sitting):
        return Record(
            "layer",
            code,
            case,
            "float32",
            "cpu",
            "error",
            reason="made up",
            extra={"sitting": sitting} if sitting else None,
        )

    about = [
        {"run": "c", "started": 20.0, "finished": 30.0},
        {"run": "a", "started": 0.0, "finished": 10.0},
        {"run": "b", "started": 9.0, "finished": 15.0},
    ]
    some = [record(c, s) for c, s in zip(CODES, "cabcc")] + [record(CODES[5], "a"), record(CODES[6], "b")]
    first, second = sessions.machines(about, some)
    assert {r.extra["sitting"] for r in first} == {"a", "b"} and {r.extra["sitting"] for r in second} == {"c"}
    assert len(first) == 4 and len(second) == 3, "the most first"
    assert sessions.machines((), [record(c, None) for c in CODES]) == [[record(c, None) for c in CODES]]
    assert sessions.machines(about, []) == []
